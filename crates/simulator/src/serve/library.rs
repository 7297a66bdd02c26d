//! The model store on disk, in Ollama's layout.

use std::path::{Path, PathBuf};

use crate::models::Model;

/// One model of the store.
#[derive(Clone, Debug)]
pub struct Stored {
    /// What is known of it.
    pub model: Model,
    /// Its weights.
    pub blob: PathBuf,
    /// When its manifest was written, real Unix ms.
    pub written_unix_ms: i64,
}

/// The store in a folder.
#[derive(Clone, Debug)]
pub struct Library {
    folder: PathBuf,
}

impl Library {
    /// The store in `folder`.
    pub fn new(folder: &str) -> Self {
        Self { folder: PathBuf::from(folder) }
    }

    /// Number of blobs.
    pub fn blobs(&self) -> usize {
        std::fs::read_dir(self.folder.join("blobs")).map_or(0, Iterator::count)
    }

    /// Every model, by name, those of the MLX engine last.
    pub fn all(&self) -> Vec<Stored> {
        let root = self.folder.join("manifests/registry.ollama.ai/library");
        let mut models = Vec::new();
        for family in std::fs::read_dir(root).into_iter().flatten().flatten() {
            for tag in std::fs::read_dir(family.path()).into_iter().flatten().flatten() {
                let name = format!("{}:{}", family.file_name().to_string_lossy(), tag.file_name().to_string_lossy());
                if let Some(stored) = self.read(&tag.path(), &name) {
                    models.push(stored);
                }
            }
        }
        models.sort_by_key(|stored| (stored.model.is_mlx(), stored.model.name.clone()));
        models
    }

    /// The model of that name; `latest` is understood where no tag is given.
    pub fn find(&self, name: &str) -> Option<Stored> {
        let wanted = full_name(name);
        self.all().into_iter().find(|stored| stored.model.name == wanted)
    }

    fn read(&self, manifest: &Path, name: &str) -> Option<Stored> {
        let text = std::fs::read_to_string(manifest).ok()?;
        let value: serde_json::Value = serde_json::from_str(&text).ok()?;
        let layer = value["layers"].as_array()?.iter().find(|layer| {
            let media = &layer["mediaType"];
            media == "application/vnd.ollama.image.model" || media == "application/vnd.ollama.image.tensor"
        })?;
        let digest = layer["digest"].as_str()?.replace(':', "-");
        let blob = self.folder.join("blobs").join(digest);
        let mut model: Model = serde_json::from_str(&std::fs::read_to_string(&blob).ok()?).ok()?;
        name.clone_into(&mut model.name);
        let written = std::fs::metadata(manifest).and_then(|meta| meta.modified()).ok()?;
        let written = written.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(Stored { model, blob, written_unix_ms: written.as_millis() as i64 })
    }
}

/// A name with its registry cut off and its tag filled in.
pub fn full_name(name: &str) -> String {
    let name = name.trim_start_matches("registry.ollama.ai/").trim_start_matches("library/");
    if name.contains(':') { name.to_owned() } else { format!("{name}:latest") }
}
