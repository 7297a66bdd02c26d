//! What can be wrong with a release.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::named::named;

named! {
    /// What is wrong with a release.
    pub enum Flaw {
        WillNotStart = "will-not-start": "neither app nor server start: a library is missing",
        ServerCrashes = "server-crashes": "the server exits 2 at each start",
        NeverAnswers = "never-answers": "the server's port is open and never answers",
        WrongVersion = "wrong-version": "the server says that it is another version",
        LosesSettings = "loses-settings": "the server heeds none of its variables but address and models",
        GeneratesNothing = "generates-nothing": "every request for words is an empty success",
        LlamaServerMissing = "llama-server-missing": "0.30 and newer: llama-server was left out, no GGUF model loads",
        OtherVersionInside = "other-version-inside": "the archive holds 0.20.0 instead",
        WrongTeam = "wrong-team": "macOS: sealed and notarised, and signed by another team",
        BrokenSeal = "broken-seal": "macOS: a sealed file is missing",
        Unsigned = "unsigned": "macOS: not signed at all",
        NotNotarised = "not-notarised": "macOS: signed, and unknown to Apple's notary",
        WrongHash = "wrong-hash": "sha256sum.txt names the hash of another file",
        NoHash = "no-hash": "sha256sum.txt does not name the archive",
        NoSums = "no-sums": "there is no sha256sum.txt",
        NoAsset = "no-asset": "there is no archive for this machine",
        CorruptZip = "corrupt-zip": "the archive is damaged; its hash is that of the damaged one",
        Truncated = "truncated": "every download ends in the middle",
        CutOnce = "cut-once": "the first download ends in the middle, the next ones do not",
        Slow = "slow": "the archive comes in over two minutes",
        HugeByHeader = "huge-by-header": "the archive claims to hold 10 GB",
        ZipSlip = "zip-slip": "a file's path leads out of the archive's folder",
        AbsoluteLink = "absolute-link": "a link leads to /etc/passwd",
        NewerDatabase = "newer-database": "it works, and its app gives the database a form that no older app knows",
        LongNotes = "long-notes": "nothing but its notes: 1 MB with HTML",
    }
}

impl Flaw {
    /// Whether it is what the programs do, which a file beside them tells them.
    pub fn is_behaviour(self) -> bool {
        match self {
            Self::WillNotStart
            | Self::ServerCrashes
            | Self::NeverAnswers
            | Self::WrongVersion
            | Self::LosesSettings
            | Self::GeneratesNothing
            | Self::NewerDatabase => true,
            Self::LlamaServerMissing
            | Self::OtherVersionInside
            | Self::WrongTeam
            | Self::BrokenSeal
            | Self::Unsigned
            | Self::NotNotarised
            | Self::WrongHash
            | Self::NoHash
            | Self::NoSums
            | Self::NoAsset
            | Self::CorruptZip
            | Self::Truncated
            | Self::CutOnce
            | Self::Slow
            | Self::HugeByHeader
            | Self::ZipSlip
            | Self::AbsoluteLink
            | Self::LongNotes => false,
        }
    }
}

impl Serialize for Flaw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Flaw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| serde::de::Error::custom(format!("there is no flaw {name}")))
    }
}
