//! The registry's SQLite database.
//!
//! It holds nothing that a scan could not find again, so it is never migrated: a database of
//! another version is emptied, and one that SQLite finds damaged is set aside for a new one.
//! Several processes may use it at once.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior,
    params,
};

use super::{record::ModelRecord, resolve::Model};
use crate::{
    error::{Error, Kind, Result},
    escape::EscapedPath,
};

/// Raised with every change of the tables or of what the records mean.
const VERSION: i32 = 1;

/// How long to wait for another process's transaction.
const PATIENCE: Duration = Duration::from_secs(10);

const SCHEMA: &str = "
    CREATE TABLE snapshot (
        path TEXT PRIMARY KEY,
        hub TEXT NOT NULL,
        repo TEXT NOT NULL,
        repo_id TEXT NOT NULL COLLATE NOCASE,
        model_type TEXT,
        is_drafter INTEGER NOT NULL,
        is_main INTEGER NOT NULL,
        is_complete INTEGER NOT NULL,
        modified INTEGER NOT NULL,
        fingerprint BLOB NOT NULL,
        record TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX snapshot_hub ON snapshot (hub);
    CREATE INDEX snapshot_repo_id ON snapshot (repo_id);
";

/// A hash over names, sizes and times of change of a snapshot's files.
pub(crate) type Fingerprint = [u8; 16];

/// What tells whether a snapshot must be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) is_main: bool,
    /// The folder's time of change, in nanoseconds since 1970.
    pub(crate) modified: i64,
}

/// A snapshot as the database holds it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The repository's folder.
    pub(crate) repo: String,
    pub(crate) stamp: Stamp,
    pub(crate) record: ModelRecord,
}

/// What a scan found out about one hub.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) read: Vec<Entry>,
    /// Unchanged files, but another stamp, by path.
    pub(crate) touched: Vec<(String, Stamp)>,
    /// Paths that are no snapshots any more.
    pub(crate) gone: Vec<String>,
}

/// An open database.
#[derive(Debug)]
pub(crate) struct Index {
    connection: Connection,
}

impl Index {
    /// Opens or makes the database; its folder is made too. `:memory:` is a private one.
    ///
    /// # Errors
    /// As they are sorted by [`Failure`].
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        if is_memory(path) {
            let connection = Connection::open_in_memory().map_err(|e| Failure::of(path, e))?;
            return Self::prepare(connection, path);
        }
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            fs::create_dir_all(folder).map_err(|e| Error::io(EscapedPath(folder), e))?;
        }
        // No URI: a path is a path, whatever characters are in it.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(path, flags).map_err(|e| Failure::of(path, e))?;
        Self::prepare(connection, path)
    }

    fn prepare(connection: Connection, path: &Path) -> Result<Self, Failure> {
        let mut index = Self { connection };
        index.set_up().map_err(|e| Failure::of(path, e))?;
        Ok(index)
    }

    fn set_up(&mut self) -> rusqlite::Result<()> {
        self.connection.busy_timeout(PATIENCE)?;
        // The busy handler does not cover a change of the journal mode.
        let patience = Instant::now() + PATIENCE;
        loop {
            let mode = self
                .connection
                .query_row("PRAGMA journal_mode = WAL", [], |row| {
                    row.get::<_, String>(0)
                });
            match mode {
                Ok(_) => break,
                Err(error) if is_busy(&error) && Instant::now() < patience => {
                    thread::sleep(Duration::from_millis(10));
                }
                Err(error) => return Err(error),
            }
        }
        self.connection
            .execute_batch("PRAGMA synchronous = NORMAL;")?;
        if version(&self.connection)? == VERSION {
            return Ok(());
        }
        let transaction = begin(&mut self.connection)?;
        if version(&transaction)? != VERSION {
            drop_everything(&transaction)?;
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        transaction.commit()
    }

    /// The stamps of a hub's snapshots, by path.
    pub(crate) fn stamps(&self, hub: &str) -> rusqlite::Result<HashMap<String, Stamp>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT path, fingerprint, is_main, modified FROM snapshot WHERE hub = ?1",
        )?;
        let rows = statement.query_map([hub], |row| {
            let stamp = Stamp {
                fingerprint: row.get(1)?,
                is_main: row.get(2)?,
                modified: row.get(3)?,
            };
            Ok((row.get(0)?, stamp))
        })?;
        rows.collect()
    }

    /// Stores what a scan of `hub` found, all of it or nothing.
    pub(crate) fn apply(&mut self, hub: &str, changes: &Changes) -> rusqlite::Result<()> {
        if changes.read.is_empty() && changes.touched.is_empty() && changes.gone.is_empty() {
            return Ok(());
        }
        let transaction = begin(&mut self.connection)?;
        {
            let mut write = transaction.prepare_cached(
                "INSERT OR REPLACE INTO snapshot VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?;
            for Entry {
                repo,
                stamp,
                record,
            } in &changes.read
            {
                let json = serde_json::to_string(record)
                    .expect("a record is plain data with text for keys");
                write.execute(params![
                    record.path,
                    hub,
                    repo,
                    record.repo_id,
                    record.model_type,
                    record.is_drafter,
                    stamp.is_main,
                    record.is_complete,
                    stamp.modified,
                    stamp.fingerprint,
                    json,
                ])?;
            }
            let mut touch = transaction.prepare_cached(
                "UPDATE snapshot SET is_main = ?2, modified = ?3 WHERE path = ?1",
            )?;
            for (path, stamp) in &changes.touched {
                touch.execute(params![path, stamp.is_main, stamp.modified])?;
            }
            let mut remove = transaction.prepare_cached("DELETE FROM snapshot WHERE path = ?1")?;
            for path in &changes.gone {
                remove.execute([path])?;
            }
        }
        transaction.commit()
    }

    /// All snapshots of all hubs.
    pub(crate) fn entries(&self) -> rusqlite::Result<Vec<Entry>> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT repo, fingerprint, is_main, modified, record FROM snapshot")?;
        let rows = statement.query_map([], entry)?;
        rows.collect()
    }

    /// One snapshot.
    pub(crate) fn entry(&self, path: &str) -> rusqlite::Result<Option<Entry>> {
        self.connection
            .prepare_cached(
                "SELECT repo, fingerprint, is_main, modified, record FROM snapshot WHERE path = ?1",
            )?
            .query_row([path], entry)
            .optional()
    }

    /// Snapshots whose repository has this id, in any letter case.
    pub(crate) fn models_by_id(&self, id: &str) -> rusqlite::Result<Vec<Model>> {
        self.models("WHERE repo_id = ?1", &[&id])
    }

    /// Snapshots whose repository's id, or whose model type, may contain `text` in any letter
    /// case: none that does is missing.
    pub(crate) fn models_by_part(&self, text: &str) -> rusqlite::Result<Vec<Model>> {
        // SQLite folds the letter case of ASCII only.
        if !text.is_ascii() {
            return self.models("", &[]);
        }
        let condition = "WHERE instr(lower(repo_id), lower(?1)) \
                         OR instr(lower(model_type), lower(?1))";
        self.models(condition, &[&text])
    }

    fn models(
        &self,
        condition: &str,
        parameters: &[&dyn rusqlite::ToSql],
    ) -> rusqlite::Result<Vec<Model>> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT repo, repo_id, model_type, is_drafter, is_main, is_complete, modified, path \
             FROM snapshot {condition} ORDER BY path"
        ))?;
        let rows = statement.query_map(parameters, |row| {
            Ok(Model {
                repo: row.get(0)?,
                repo_id: row.get(1)?,
                model_type: row.get(2)?,
                is_drafter: row.get(3)?,
                is_main: row.get(4)?,
                is_complete: row.get(5)?,
                modified: row.get(6)?,
                path: row.get(7)?,
            })
        })?;
        rows.collect()
    }
}

/// SQLite's name for a private database in memory.
fn is_memory(path: &Path) -> bool {
    path == Path::new(":memory:")
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let json: String = row.get(4)?;
    let record = serde_json::from_str(&json).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(4, rusqlite::types::Type::Text, error.into())
    })?;
    Ok(Entry {
        repo: row.get(0)?,
        stamp: Stamp {
            fingerprint: row.get(1)?,
            is_main: row.get(2)?,
            modified: row.get(3)?,
        },
        record,
    })
}

fn begin(connection: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

fn version(connection: &Connection) -> rusqlite::Result<i32> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn drop_everything(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare(
        "SELECT type, name FROM sqlite_schema \
         WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
    )?;
    let objects: Vec<(String, String)> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (kind, name) in objects {
        let name = name.replace('"', "\"\"");
        transaction.execute_batch(&format!("DROP {kind} IF EXISTS \"{name}\";"))?;
    }
    Ok(())
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// Why an operation failed, as far as the registry can do something about it.
pub(crate) enum Failure {
    /// The file is no database, or holds what this library does not write.
    Damage(Error),
    /// The tables are not those of this version.
    Tables(Error),
    Other(Error),
}

impl Failure {
    pub(crate) fn of(path: &Path, error: rusqlite::Error) -> Self {
        let code = error.sqlite_error_code();
        let kind = match code {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Kind::Locked,
            Some(ErrorCode::DiskFull) => Kind::NoSpace,
            Some(ErrorCode::OutOfMemory) => Kind::OutOfMemory,
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) | None => Kind::Corrupt,
            Some(_) => Kind::Io,
        };
        let error =
            Error::new(kind, format!("registry {}: {error}", EscapedPath(path))).with_source(error);
        match (code, kind) {
            (_, Kind::Corrupt) => Self::Damage(error),
            (Some(ErrorCode::Unknown | ErrorCode::SchemaChanged), _) => Self::Tables(error),
            _ => Self::Other(error),
        }
    }

    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Damage(error) | Self::Tables(error) | Self::Other(error) => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// Moves a damaged database out of the way, unless another process has done so meanwhile. The
/// last damaged one is kept beside the new one.
///
/// # Errors
/// What the system reports.
pub(crate) fn set_aside(path: &Path) -> Result<()> {
    if is_memory(path) {
        return Ok(());
    }
    let beside = |end: &str| -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        name.into()
    };
    let io = |e| Error::io(EscapedPath(path), e);
    let lock = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(beside(".lock"))
        .map_err(io)?;
    lock.lock().map_err(io)?;
    if is_sound(path) {
        return Ok(());
    }
    for end in ["-wal", "-shm", ""] {
        match fs::rename(beside(end), beside(&format!(".damaged{end}"))) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io(e)),
            _ => {}
        }
    }
    Ok(())
}

fn is_sound(path: &Path) -> bool {
    let check = |connection: Connection| -> rusqlite::Result<String> {
        connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
    };
    let index = Index::open(path);
    index.is_ok_and(|index| {
        index.entries().is_ok() && check(index.connection).is_ok_and(|answer| answer == "ok")
    })
}
