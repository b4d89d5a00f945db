//! What the recorder logs about itself, as the user's environment says (docs/debugging-hindsight.md).

use hindsight_events::config::{Config, LOG_FILE_LEN};
use hindsight_events::log::parse;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Says which entries are logged: `AREA=LEVEL[,AREA=LEVEL…]`.
const LEVELS: &str = "HINDSIGHT_LOG";

/// Names a file for entries that are to be seen at once; `-` is standard error.
const FILE: &str = "HINDSIGHT_LOG_FILE";

/// Longest path of that file, in bytes.
const MOST: usize = LOG_FILE_LEN - 1;

/// Why the recorder cannot log about itself what the environment says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// `HINDSIGHT_LOG` has another form, or names something that there is not. The text says what there is.
    #[error("{LEVELS}: {0}")]
    Levels(String),
    /// There is a file for the log, and nothing to log.
    #[error("{FILE} is set, but {LEVELS} does not say what to log")]
    Nothing,
    /// The path of the file is too long.
    #[error("{FILE}: the path has {len} bytes, and at most {MOST} are possible")]
    Long {
        /// Its length in bytes.
        len: usize,
    },
    /// The file cannot be written.
    #[error("{FILE}: cannot write {}: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        cause: io::Error,
    },
}

/// Sets what the environment says. Empties the file, if there is one.
pub fn set(c: &mut Config) -> Result<(), LogError> {
    let var = |name| std::env::var_os(name).filter(|v| !v.is_empty());
    choose(c, var(LEVELS), var(FILE))?;
    let file = &c.log_file[..c.log_file.iter().position(|b| *b == 0).unwrap_or(0)];
    if !matches!(file, b"" | b"-") {
        let path = Path::new(OsStr::from_bytes(file));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let opened = options.open(path);
        opened.map_err(|cause| LogError::Write {
            path: path.into(),
            cause,
        })?;
    }
    Ok(())
}

fn choose(
    c: &mut Config,
    levels: Option<OsString>,
    file: Option<OsString>,
) -> Result<(), LogError> {
    let Some(levels) = levels else {
        return match file {
            Some(_) => Err(LogError::Nothing),
            None => Ok(()),
        };
    };
    let text = levels.to_string_lossy();
    c.log = parse(&text).map_err(|e| LogError::Levels(e.to_string()))?;
    let Some(file) = file else {
        return Ok(());
    };
    let path = match file.as_bytes() {
        b"-" => PathBuf::from(file),
        // The program may be elsewhere by the time.
        _ => std::path::absolute(&file).map_err(|cause| LogError::Write {
            path: file.into(),
            cause,
        })?,
    };
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= LOG_FILE_LEN {
        return Err(LogError::Long { len: bytes.len() });
    }
    c.log_file[..bytes.len()].copy_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_events::log::{AREAS, Area, Level};

    fn chosen(levels: Option<&str>, file: Option<&str>) -> Result<Config, LogError> {
        let mut c = Config::new();
        choose(&mut c, levels.map(Into::into), file.map(Into::into))?;
        Ok(c)
    }

    #[test]
    fn nothing_is_logged_unless_it_is_asked_for() {
        let c = chosen(None, None).unwrap();
        assert_eq!((c.log, c.log_file[0]), ([0; AREAS], 0));
    }

    #[test]
    fn levels_and_an_absolute_path_reach_the_recorder() {
        let c = chosen(Some("code=debug"), Some("a/b")).unwrap();
        assert_eq!(c.log[Area::Code as usize], Level::Debug as u8);
        let end = c.log_file.iter().position(|b| *b == 0).unwrap();
        let path = std::str::from_utf8(&c.log_file[..end]).unwrap();
        assert!(path.starts_with('/') && path.ends_with("/a/b"), "{path}");
        assert!(chosen(Some("all=info"), Some("-")).unwrap().log_file[..2] == *b"-\0");
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        let message = |l, f| chosen(l, f).err().map(|e| e.to_string()).unwrap();
        assert!(
            message(Some("cod=debug"), None).contains("HINDSIGHT_LOG: there is no area \"cod\"")
        );
        assert!(message(None, Some("x")).contains("HINDSIGHT_LOG does not say"));
        assert!(message(Some("all=info"), Some(&"x".repeat(300))).contains("at most 255"));
    }
}
