//! The person's choices for the face: `face.json` in Stablehand's folder. Whether the face starts at login is not kept
//! in it: the file that does it is the truth, and a person may take that away by hand.

use crate::kept_file;
use crate::place::Place;
use stablehand_protocol::face::Choices;
use std::io;

/// The choices as they are now; a file that cannot be read is as good as none.
pub fn read(place: &Place) -> Choices {
    let kept = std::fs::read(&place.choices_file).ok().and_then(|text| serde_json::from_slice::<Choices>(&text).ok());
    Choices { at_login: place.starts_at_login(), ..kept.unwrap_or_default() }
}

/// Keeps them.
///
/// # Errors
/// When the file cannot be written; it is as it was.
pub fn write(place: &Place, choices: &Choices) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(choices)?;
    text.push(b'\n');
    kept_file::write(&place.choices_file, &text, 0o600)
}
