//! How GitHub tells of a release.

use anyhow::Result;
use serde_json::{Value, json};

use super::archives::{self, is_archive};
use super::flaw::Flaw;
use super::{Release, published};
use crate::world::{World, moments};

/// Releases as `GET /repos/ollama/ollama/releases` lists them.
pub fn all(world: &World, base: &str) -> Result<Vec<Value>> {
    published(world).iter().map(|release| one(world, release, base)).collect()
}

/// One release.
pub fn one(world: &World, release: &Release, base: &str) -> Result<Value> {
    let tag = release.tag();
    let published = moments::rfc3339_utc(release.published_unix_ms);
    let files: Vec<Value> = archives::assets(world, release)?
        .into_iter()
        .enumerate()
        .map(|(index, asset)| {
            let kind = if is_archive(&asset.name) { "application/octet-stream" } else { "text/plain" };
            json!({
                "id": index + 1,
                "name": asset.name,
                "content_type": kind,
                "state": "uploaded",
                "size": asset.size_bytes,
                "digest": format!("sha256:{}", asset.sha256),
                "browser_download_url": format!("{base}/ollama/ollama/releases/download/{tag}/{}", asset.name),
            })
        })
        .collect();
    Ok(json!({
        "url": format!("{base}/repos/ollama/ollama/releases/tags/{tag}"),
        "html_url": format!("https://github.com/ollama/ollama/releases/tag/{tag}"),
        "tag_name": tag,
        "name": tag,
        "draft": false,
        "prerelease": release.is_candidate(),
        "created_at": published,
        "published_at": published,
        "assets": files,
        "body": notes(release),
    }))
}

fn notes(release: &Release) -> String {
    let Release { version, .. } = release;
    if release.has(Flaw::LongNotes) {
        let line = "<p onclick=\"alert(1)\">A <b>fast</b> release &amp; a long story</p>\n<script>alert(2)</script>\n";
        return line.repeat((1 << 20) / line.len() + 1);
    }
    format!(
        "## What's Changed\r\n\r\n* Faster prompts on Apple silicon\r\n* Models stay loaded over a sleep\r\n* Fixes for tool calls in `/v1/messages`\r\n\r\n**Full Changelog**: https://github.com/ollama/ollama/compare/v0.20.0...v{version}\r\n"
    )
}
