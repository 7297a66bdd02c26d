//! For scripts/bench app: when the popover's frames are on the screen, told on stderr. The page hears nothing of it but
//! a script that runs before its own.

use std::borrow::Cow;
use std::io::Write;
use tauri::{AppHandle, WebviewWindowBuilder, Wry};

/// `page` tells of the page's frames, `empty` puts an empty page in its place and tells of that one's.
const VARIABLE: &str = "STABLEHAND_FRAMES";
/// What an empty page consists of.
const EMPTY: &[u8] = b"<!doctype html><html lang=\"en\"><title>Stablehand</title><body></body></html>";
/// How a frame is told: its page has no other way out that needs no right.
const TITLE: &str = "frame ";
/// After the second callback the frame of the first one is on the screen. A page is what it is to be when it shows a
/// view, an empty one as soon as it is read. `SEEN` stands for that.
const SCRIPT: &str = "(() => {
  const seen = () => SEEN;
  const tell = () => {
    if (document.visibilityState !== 'visible' || !seen()) return;
    requestAnimationFrame(() => requestAnimationFrame(() => {
      document.title = `frame ${performance.timeOrigin + performance.now()}`;
    }));
  };
  const watching = new MutationObserver(() => {
    if (!seen()) return;
    watching.disconnect();
    tell();
  });
  watching.observe(document, { childList: true, subtree: true });
  document.addEventListener('visibilitychange', tell);
  document.addEventListener('DOMContentLoaded', tell);
})();";

/// Whose frames are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// The page's.
    Page,
    /// Those of an empty page.
    Empty,
}

impl Frames {
    /// What the environment asks for; nothing, outside of a measurement.
    pub fn wanted() -> Option<Self> {
        match std::env::var(VARIABLE).ok()?.as_str() {
            "page" => Some(Self::Page),
            "empty" => Some(Self::Empty),
            _ => None,
        }
    }

    fn seen(self) -> &'static str {
        match self {
            // The button comes with the first view.
            Self::Page => "document.querySelector('footer button') !== null",
            Self::Empty => "document.readyState !== 'loading'",
        }
    }
}

/// Makes a window tell of its frames: `frame MS`, in milliseconds since 1970.
pub fn told(
    builder: WebviewWindowBuilder<'_, Wry, AppHandle>,
    frames: Frames,
) -> WebviewWindowBuilder<'_, Wry, AppHandle> {
    builder
        .initialization_script(SCRIPT.replace("SEEN", frames.seen()))
        .on_document_title_changed(|_, title| {
            if title.starts_with(TITLE) {
                let _ = writeln!(std::io::stderr(), "{title}");
            }
        })
        .on_web_resource_request(move |request, response| match frames {
            Frames::Empty if request.uri().path().ends_with("index.html") || request.uri().path() == "/" => {
                *response.body_mut() = Cow::Borrowed(EMPTY);
            }
            Frames::Empty | Frames::Page => {}
        })
}
