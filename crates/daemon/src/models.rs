//! Names of models by the blob that their runner was started with.
//!
//! Ollama keeps them in `~/.ollama/models/manifests/HOST/NAMESPACE/MODEL/TAG`, each a JSON list of layers with the
//! digests of their blobs (`ollama manifest/manifest.go`).

use serde::Deserialize;
use stablehand_engine::time::Awake;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Media type of the layer that a runner is started with.
const WEIGHTS: &str = "application/vnd.ollama.image.model";

/// What was found is believed for so long: `ollama cp` gives a blob another name, `ollama rm` takes one away.
const BELIEVED: Duration = Duration::from_secs(60);

/// Remembers what was found, and what was not: the manifest stands before the server can start a runner for it, so that
/// a blob without a name does not get one from being looked for at every look.
#[derive(Debug, Default)]
pub struct ModelNames {
    /// All names of each blob, in their order; none for a blob that was looked for and that no manifest names.
    by_blob: HashMap<String, Vec<String>>,
    read_at: Option<Awake>,
}

/// What a model is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// One name, for people: the first, or the blob's short digest when no manifest names it.
    pub name: String,
    /// Every name; empty when no manifest names it. One blob has several after `ollama cp`, or when a model was made
    /// from another one.
    pub all: Vec<String>,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    digest: String,
}

impl ModelNames {
    /// What the model is called whose runner was started with this blob path. What is no blob path (an MLX model) is a
    /// name already.
    pub fn of(&mut self, home: &Path, now: Awake, model: &str) -> Named {
        let Some(blob) = blob_of(model) else { return Named { name: model.to_owned(), all: vec![model.to_owned()] } };
        let stale = self.read_at.is_none_or(|at| now.since(at) >= BELIEVED);
        if stale || !self.by_blob.contains_key(blob) {
            let folder = manifests_beside(Path::new(model)).unwrap_or_else(|| home.join(".ollama/models/manifests"));
            if stale {
                self.by_blob.clear();
                self.read_at = Some(now);
            }
            self.by_blob.extend(read(&folder));
        }
        let all = self.by_blob.entry(blob.to_owned()).or_default().clone();
        let short = || blob.chars().take("sha256-".len() + 12).collect();
        Named { name: all.first().cloned().unwrap_or_else(short), all }
    }
}

/// `…/blobs/sha256-HEX` names a blob.
fn blob_of(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next()?;
    (path.contains('/') && name.starts_with("sha256-")).then_some(name)
}

fn manifests_beside(blob: &Path) -> Option<PathBuf> {
    Some(blob.parent()?.parent()?.join("manifests"))
}

fn read(folder: &Path) -> HashMap<String, Vec<String>> {
    let mut names: HashMap<String, Vec<String>> = HashMap::new();
    for host in entries(folder) {
        for namespace in entries(&host) {
            for model in entries(&namespace) {
                for tag in entries(&model) {
                    let Some(name) = name(&host, &namespace, &model, &tag) else { continue };
                    for blob in weights(&tag) {
                        names.entry(blob).or_default().push(name.clone());
                    }
                }
            }
        }
    }
    names
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(listing) = std::fs::read_dir(folder) else { return vec![] };
    let mut paths: Vec<_> = listing.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// The name as Ollama prints it: without its own registry and library.
fn name(host: &Path, namespace: &Path, model: &Path, tag: &Path) -> Option<String> {
    let part = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
    let (host, namespace, model, tag) = (part(host)?, part(namespace)?, part(model)?, part(tag)?);
    Some(match (host.as_str(), namespace.as_str()) {
        ("registry.ollama.ai", "library") => format!("{model}:{tag}"),
        ("registry.ollama.ai", _) => format!("{namespace}/{model}:{tag}"),
        (_, _) => format!("{host}/{namespace}/{model}:{tag}"),
    })
}

fn weights(manifest: &Path) -> Vec<String> {
    let Ok(text) = std::fs::read(manifest) else { return vec![] };
    let Ok(manifest) = serde_json::from_slice::<Manifest>(&text) else { return vec![] };
    let weights = manifest.layers.into_iter().filter(|layer| layer.media_type == WEIGHTS);
    weights.map(|layer| layer.digest.replace(':', "-")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_find_their_names_and_broken_manifests_do_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let manifest = |digest: &str| {
            format!(r#"{{"layers":[{{"mediaType":"{WEIGHTS}","digest":"sha256:{digest}"}},{{"mediaType":"x"}}]}}"#)
        };
        write("manifests/registry.ollama.ai/library/gemma4/26b", &manifest("aa"));
        write("manifests/registry.ollama.ai/library/gemma4/copy", &manifest("aa"));
        write("manifests/registry.ollama.ai/jo/한글 model/latest", &manifest("bb"));
        write("manifests/hf.co/a/b/q4", &manifest("cc"));
        write("manifests/registry.ollama.ai/library/broken/1", "{");
        let names = read(&folder.path().join("manifests"));
        assert_eq!(names["sha256-aa"], ["gemma4:26b", "gemma4:copy"]);
        assert_eq!(names["sha256-bb"], ["jo/한글 model:latest"]);
        assert_eq!(names["sha256-cc"], ["hf.co/a/b:q4"]);
        assert_eq!(names.len(), 3);
    }

    #[test]
    fn a_blob_without_a_name_is_not_looked_for_at_every_look() {
        let folder = tempfile::tempdir().unwrap();
        let at = |seconds| Awake::from_start(Duration::from_secs(seconds));
        let blob = folder.path().join("models/blobs/sha256-aa").display().to_string();
        let manifest = folder.path().join("models/manifests/registry.ollama.ai/library/gemma4/26b");
        let mut names = ModelNames::default();
        assert_eq!(names.of(folder.path(), at(0), &blob), Named { name: "sha256-aa".to_owned(), all: vec![] });
        std::fs::create_dir_all(manifest.parent().unwrap()).unwrap();
        std::fs::write(&manifest, format!(r#"{{"layers":[{{"mediaType":"{WEIGHTS}","digest":"sha256:aa"}}]}}"#))
            .unwrap();
        assert_eq!(names.of(folder.path(), at(59), &blob).all, Vec::<String>::new(), "believed for a while");
        assert_eq!(names.of(folder.path(), at(60), &blob).all, ["gemma4:26b"], "and not for ever");
    }

    #[test]
    fn only_a_path_of_a_blob_is_one() {
        assert_eq!(blob_of("/h/.ollama/models/blobs/sha256-ab"), Some("sha256-ab"));
        assert_eq!(blob_of("qwen3:8b"), None);
        assert_eq!(manifests_beside(Path::new("/m/blobs/sha256-ab")), Some("/m/manifests".into()));
    }
}
