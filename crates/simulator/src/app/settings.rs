//! The app's own settings database. Its values beat the environment when the
//! app starts the server.

use std::path::PathBuf;

use anyhow::{Context, Result};
use rusqlite::Connection;

use crate::world::{World, write_whole};

/// The database of the app.
pub fn file(world: &World) -> PathBuf {
    world.home().join("Library/Application Support/Ollama/db.sqlite")
}

/// Makes the database of a fresh install.
pub fn create(world: &World) -> Result<()> {
    write_whole(&file(world).with_file_name("ollama.pid"), b"")?;
    let connection = open(world)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL;
         CREATE TABLE IF NOT EXISTS settings (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            device_id TEXT NOT NULL DEFAULT '',
            has_completed_first_run BOOLEAN NOT NULL DEFAULT 1,
            expose BOOLEAN NOT NULL DEFAULT 0,
            survey BOOLEAN NOT NULL DEFAULT 1,
            browser BOOLEAN NOT NULL DEFAULT 0,
            models TEXT NOT NULL DEFAULT '',
            agent BOOLEAN NOT NULL DEFAULT 0,
            tools BOOLEAN NOT NULL DEFAULT 0,
            working_dir TEXT NOT NULL DEFAULT '',
            context_length INTEGER NOT NULL DEFAULT 0,
            window_width INTEGER NOT NULL DEFAULT 0,
            window_height INTEGER NOT NULL DEFAULT 0,
            config_migrated BOOLEAN NOT NULL DEFAULT 1,
            airplane_mode BOOLEAN NOT NULL DEFAULT 0,
            turbo_enabled BOOLEAN NOT NULL DEFAULT 0,
            websearch_enabled BOOLEAN NOT NULL DEFAULT 0,
            selected_model TEXT NOT NULL DEFAULT '',
            sidebar_open BOOLEAN NOT NULL DEFAULT 0,
            think_enabled BOOLEAN NOT NULL DEFAULT 0,
            think_level TEXT NOT NULL DEFAULT '',
            auto_update_enabled BOOLEAN NOT NULL DEFAULT 1,
            schema_version INTEGER NOT NULL DEFAULT 16
         );
         CREATE TABLE IF NOT EXISTS chats (
            id TEXT PRIMARY KEY, title TEXT NOT NULL DEFAULT '', created_at TEXT NOT NULL DEFAULT ''
         );
         INSERT OR IGNORE INTO settings (id) VALUES (1);",
    )?;
    Ok(())
}

/// Changes one setting, as the app's settings window does.
pub fn set(world: &World, column: &'static str, value: i64) -> Result<()> {
    open(world)?
        .execute(&format!("UPDATE settings SET {column} = ?1 WHERE id = 1"), [value])
        .with_context(|| format!("the app's setting {column} cannot be changed"))?;
    Ok(())
}

/// The variables that the app puts over its own environment for the server
/// (`app/server/server.go`). A database that cannot be read overrides nothing.
pub fn overrides(world: &World) -> Vec<(&'static str, String)> {
    let mut variables = Vec::new();
    let row = open(world).and_then(|connection| {
        Ok(connection.query_row(
            "SELECT expose, browser, models, context_length, airplane_mode FROM settings WHERE id = 1",
            [],
            |row| {
                Ok((
                    row.get::<_, bool>(0)?,
                    row.get::<_, bool>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, i64>(3)?,
                    row.get::<_, bool>(4)?,
                ))
            },
        )?)
    });
    let (expose, browser, models, context, airplane) = row.unwrap_or((false, false, String::new(), 0, false));
    if expose {
        variables.push(("OLLAMA_HOST", "0.0.0.0".to_owned()));
    }
    if browser {
        variables.push(("OLLAMA_ORIGINS", "*".to_owned()));
    }
    if !models.is_empty() && std::path::Path::new(&models).exists() {
        variables.push(("OLLAMA_MODELS", models));
    }
    if context > 0 {
        variables.push(("OLLAMA_CONTEXT_LENGTH", context.to_string()));
    }
    variables.push(("OLLAMA_NO_CLOUD", i32::from(airplane).to_string()));
    variables
}

fn open(world: &World) -> Result<Connection> {
    let path = file(world);
    Connection::open(&path).with_context(|| format!("{} cannot be opened", path.display()))
}
