//! Property lists as they are read from and written to the disk: XML or binary, kept in the form they came in.

use crate::files::{self, FileError};
use plist::{Dictionary, Value};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// A property list file whose top is a dictionary.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PropertyList {
    /// Its contents.
    pub(crate) top: Dictionary,
    pub(super) form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Xml,
    Binary,
}

/// Why a file is no property list that can be worked with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PropertyListError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{path} is no property list: {source}")]
    NotAPlist { path: PathBuf, source: plist::Error },
    #[error("{0} is a property list without a dictionary at its top")]
    NotADictionary(PathBuf),
    #[error("a property list could not be written: {0}")]
    NotWritten(plist::Error),
}

impl PropertyList {
    /// Reads a file that shall be changed; `Ok(None)` when there is none. Its bytes come along, for a change that names what was before.
    pub(crate) fn read(path: &Path) -> Result<Option<(Self, Vec<u8>)>, PropertyListError> {
        // A link is told apart here, before anybody plans to write through it.
        if fs::symlink_metadata(path).is_ok_and(|about| about.is_symlink()) {
            return Err(FileError::Symlink(path.to_path_buf()).into());
        }
        let Some(bytes) = files::read(path)? else { return Ok(None) };
        Ok(Some((Self::parse(path, &bytes)?, bytes)))
    }

    /// Reads a file that is only looked at, also through a link; `Ok(None)` when there is none.
    pub(crate) fn look(path: &Path) -> Result<Option<Self>, PropertyListError> {
        let Some(bytes) = files::read(path)? else { return Ok(None) };
        Self::parse(path, &bytes).map(Some)
    }

    /// Reads the bytes of a file; the path is for words only.
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, PropertyListError> {
        let form = if bytes.starts_with(b"bplist") { Form::Binary } else { Form::Xml };
        let value = Value::from_reader(Cursor::new(bytes))
            .map_err(|source| PropertyListError::NotAPlist { path: path.to_path_buf(), source })?;
        match value.into_dictionary() {
            Some(top) => Ok(Self { top, form }),
            None => Err(PropertyListError::NotADictionary(path.to_path_buf())),
        }
    }

    /// The bytes of the file, in the form it was read in.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, PropertyListError> {
        let value = Value::Dictionary(self.top.clone());
        let mut bytes = Vec::new();
        match self.form {
            Form::Xml => {
                value.to_writer_xml(&mut bytes).map_err(PropertyListError::NotWritten)?;
                bytes.push(b'\n');
            }
            Form::Binary => value.to_writer_binary(&mut bytes).map_err(PropertyListError::NotWritten)?,
        }
        Ok(bytes)
    }

    /// The text of a key.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.top.get(key)?.as_string()
    }

    /// `ProgramArguments`, or `Program` alone; empty when there is neither.
    pub(crate) fn arguments(&self) -> Vec<&str> {
        match self.top.get("ProgramArguments").and_then(Value::as_array) {
            Some(list) => list.iter().filter_map(Value::as_string).collect(),
            None => self.text("Program").into_iter().collect(),
        }
    }

    /// `KeepAlive`, as a flag or with conditions.
    pub(crate) fn keeps_alive(&self) -> bool {
        match self.top.get("KeepAlive") {
            Some(Value::Boolean(flag)) => *flag,
            Some(Value::Dictionary(conditions)) => !conditions.is_empty(),
            Some(_) | None => false,
        }
    }
}
