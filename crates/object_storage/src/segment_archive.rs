//! The archive of segments in a directory or in S3, through the `object_store` crate. A call of the log to
//! the archive blocks until the archive answers. The requests run on a separate runtime.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{
    BackoffConfig, ClientConfigKey, ClientOptions, MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload,
    RetryConfig,
};
use tailwater_log::archive::{ArchiveFailure, ArchiveObject, ArchiveStore};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Objects up to this size are uploaded in one request, and larger objects in parts of this size. S3 allows
/// 10,000 parts.
const PART_BYTES: usize = 8 << 20;

/// How many parts are uploaded at the same time.
const PARTS_MAX: usize = 3;

/// The time-outs of requests: for connecting, for the next bytes of a response, and for a whole request. The
/// upload of a part is also a request.
const CONNECT_MAX: Duration = Duration::from_secs(5);
const SILENCE_MAX: Duration = Duration::from_secs(20);
const REQUEST_MAX: Duration = Duration::from_secs(120);

/// How many times, and for how long, a request is repeated after a failure of the network or the server.
const RETRIES_MAX: usize = 5;
const RETRY_MAX: Duration = Duration::from_secs(15);

/// The address of an archive. Credentials come from the environment only (`AWS_ACCESS_KEY_ID`,
/// `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, or a role that the machine has).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveAddress {
    /// `s3://BUCKET/PREFIX`, `file:///FOLDER`, or a folder's path.
    pub url: String,
    /// The endpoint of an S3 store that is not Amazon's, such as `https://minio.internal:9000`. If absent,
    /// the value of `AWS_ENDPOINT_URL`.
    pub endpoint: Option<String>,
    /// The region. If absent, the value of `AWS_REGION` or `AWS_DEFAULT_REGION`, or else `us-east-1`.
    pub region: Option<String>,
    /// Whether the bucket name is in the path of the URL (the default) or in the host name.
    pub path_style: Option<bool>,
    /// Whether the endpoint may be reached without TLS. If absent, `AWS_ALLOW_HTTP` decides.
    pub allow_http: Option<bool>,
}

impl ArchiveAddress {
    /// The address of the archive at `url`. All other settings come from the environment.
    pub fn at(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
    }

    /// Returns the folder, if the archive is a folder.
    pub fn folder(&self) -> Option<&Path> {
        match self.url.strip_prefix("file://") {
            Some(path) => Some(Path::new(path)),
            None if self.url.contains("://") => None,
            None => Some(Path::new(&self.url)),
        }
    }

    /// Makes the path of a folder relative to `base`. Leaves the address of an S3 store unchanged.
    pub fn relative_to(mut self, base: &Path) -> Self {
        if let Some(folder) = self.folder().filter(|folder| folder.is_relative()) {
            self.url = base.join(folder).display().to_string();
        }
        self
    }
}

/// An archive in an object store, and the runtime that executes its requests.
#[derive(Debug)]
pub struct ObjectArchive {
    url: String,
    store: Arc<dyn ObjectStore>,
    prefix: String,
    /// The folder, if the archive is a folder.
    folder: Option<PathBuf>,
    runtime: Option<Runtime>,
}

impl ObjectArchive {
    /// Opens the archive for reading and writing. If the archive is a folder, creates the folder. Sends no
    /// request to an S3 store.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid address; the system's error if a folder or a thread cannot be created.
    pub fn open(address: &ArchiveAddress) -> io::Result<Self> {
        if let Some(folder) = address.folder() {
            let failed = |error: io::Error| failure(error.kind(), &error);
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        Self::open_existing(address)
    }

    /// Opens an archive for reading.
    ///
    /// # Errors
    /// The errors of [`Self::open`], and `NotFound` for a folder that does not exist.
    pub fn open_existing(address: &ArchiveAddress) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("archive")
            .enable_all()
            .build()?;
        let url = address.url.trim_end_matches('/').to_owned();
        if let Some(folder) = address.folder() {
            if !folder.is_dir() {
                return Err(failure(ErrorKind::NotFound, &"the archive's folder does not exist"));
            }
            let store = LocalFileSystem::new_with_prefix(folder).map_err(|error| of_store(&error))?;
            let store = Arc::new(store.with_fsync(true));
            let (prefix, folder, runtime) = (String::new(), Some(folder.to_owned()), Some(runtime));
            return Ok(Self {
                url: url.trim_start_matches("file://").to_owned(),
                store,
                prefix,
                folder,
                runtime,
            });
        }
        let wrong = |reason: &str| failure(ErrorKind::InvalidInput, &reason);
        let Some(("s3", rest)) = url.split_once("://") else {
            return Err(wrong("an archive is s3://BUCKET/PREFIX, file:///FOLDER, or the path of a folder"));
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() || bucket.contains('@') {
            return Err(wrong(
                "the name of a bucket must follow s3://; give credentials only in the environment",
            ));
        }
        // The S3 client needs a cryptography provider. If the process already has one, the installation
        // fails, and the client uses the existing provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = s3(address, bucket);
        if is_plain_but_forbidden(&builder) {
            return Err(wrong(
                "the endpoint is http://, without TLS; allow that with AWS_ALLOW_HTTP=true or archive_allow_http",
            ));
        }
        let store = builder.build().map_err(|error| of_store(&error))?;
        let (store, prefix) = (Arc::new(store), prefix.to_owned());
        Ok(Self { url, store, prefix, folder: None, runtime: Some(runtime) })
    }

    /// Returns the object store.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Returns the full path of an object. For "", returns the prefix of all objects.
    pub fn path(&self, name: &str) -> io::Result<ObjectPath> {
        let path = match self.prefix.is_empty() || name.is_empty() {
            true => format!("{}{name}", self.prefix),
            false => format!("{}/{name}", self.prefix),
        };
        ObjectPath::parse(&path)
            .map_err(|error| failure(ErrorKind::InvalidInput, &format_args!("{path}: {error}")))
    }

    /// Runs a request and waits for its result. The request runs on the archive's own runtime, because
    /// callers may be on another runtime and tokio does not allow nested runtimes.
    pub fn wait<T: Send + 'static>(
        &self,
        request: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        self.receive(request)?.map_err(|error| of_store(&error))
    }

    fn receive<T: Send + 'static>(&self, request: impl Future<Output = T> + Send + 'static) -> io::Result<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.spawn(async move {
            // Ignore an error: the receiver is gone only if the caller's thread has panicked.
            let _ = sender.send(request.await);
        })?;
        tailwater_log::blocking(|| receiver.recv())
            .map_err(|_| failure(ErrorKind::Other, &"the request to the archive was cancelled"))
    }

    /// Runs `future` in the background on the archive's runtime.
    ///
    /// # Errors
    /// If the archive is closed.
    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        match &self.runtime {
            Some(runtime) => Ok(runtime.spawn(future)),
            None => Err(failure(ErrorKind::Other, &"the archive is closed")),
        }
    }

    /// Uploads `first` and the rest of `content` in parts. The object becomes visible after the last part.
    fn put_parts(&self, path: &ObjectPath, first: Vec<u8>, content: &mut dyn Read) -> io::Result<()> {
        let (store, location) = (Arc::clone(&self.store), path.clone());
        let mut upload = self.wait(async move { store.put_multipart(&location).await })?;
        let sent = self.send_parts(upload.as_mut(), first, content);
        if let Err(error) = sent {
            // Ignore an error. If the abort fails, the uploaded parts take space in the bucket until the
            // bucket's lifecycle rules remove them.
            let _ = self.receive(async move { upload.abort().await });
            return Err(error);
        }
        self.wait(async move { upload.complete().await }).map(drop)
    }

    fn send_parts(
        &self,
        upload: &mut dyn MultipartUpload,
        first: Vec<u8>,
        content: &mut dyn Read,
    ) -> io::Result<()> {
        let mut uploads = VecDeque::new();
        let mut part = first;
        while !part.is_empty() {
            if uploads.len() == PARTS_MAX
                && let Some(oldest) = uploads.pop_front()
            {
                self.part_sent(oldest)?;
            }
            uploads.push_back(self.spawn(upload.put_part(PutPayload::from(part)))?);
            part = read_part(content)?;
        }
        uploads.into_iter().try_for_each(|part| self.part_sent(part))
    }

    /// Waits for the upload of a part.
    pub fn part_sent(&self, part: JoinHandle<object_store::Result<()>>) -> io::Result<()> {
        self.join(part)
    }

    /// Waits for a running request.
    pub fn join<T: Send + 'static>(&self, request: JoinHandle<object_store::Result<T>>) -> io::Result<T> {
        let joined = self.receive(request)?;
        let result = joined.map_err(|error| failure(ErrorKind::Other, &error))?;
        result.map_err(|error| of_store(&error))
    }

    /// Removes the temporary files that interrupted uploads of an object have left. They are named
    /// `OBJECT#NUMBER`.
    fn remove_staged(&self, path: &ObjectPath) {
        let Some(file) = self.folder.as_ref().map(|folder| folder.join(path.as_ref())) else { return };
        let (Some(folder), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str()))
        else {
            return;
        };
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            let staged = entry.file_name();
            let number = staged.to_str().and_then(|staged| staged.strip_prefix(name)?.strip_prefix('#'));
            if number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit())) {
                // Ignore an error: a file that cannot be removed takes space, but does no other harm.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

fn s3(address: &ArchiveAddress, bucket: &str) -> AmazonS3Builder {
    let client = ClientOptions::new()
        .with_connect_timeout(CONNECT_MAX)
        .with_read_timeout(SILENCE_MAX)
        .with_timeout(REQUEST_MAX);
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(2),
        base: 2.,
    };
    let retry = RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout: RETRY_MAX };
    // Set these client options first. If they were set later, they would replace the client settings that the
    // loop below reads from the environment, such as AWS_ALLOW_HTTP.
    let mut builder = AmazonS3Builder::new().with_client_options(client).with_retry(retry);
    for (key, value) in std::env::vars().filter(|(key, _)| key.starts_with("AWS_")) {
        if let Ok(key) = key.to_ascii_lowercase().parse() {
            builder = builder.with_config(key, value);
        }
    }
    builder = builder.with_bucket_name(bucket);
    if let Some(endpoint) = &address.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = &address.region {
        builder = builder.with_region(region);
    }
    if let Some(path_style) = address.path_style {
        builder = builder.with_virtual_hosted_style_request(!path_style);
    }
    match address.allow_http {
        Some(allow_http) => builder.with_allow_http(allow_http),
        None => builder,
    }
}

/// Whether the endpoint has no TLS although TLS is required. Without this check, requests would fail with an
/// error that does not name the cause.
fn is_plain_but_forbidden(builder: &AmazonS3Builder) -> bool {
    let value = |key| builder.get_config_value(&key);
    let is_plain = value(AmazonS3ConfigKey::Endpoint).is_some_and(|endpoint| endpoint.starts_with("http://"));
    let allows = value(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    is_plain && allows.is_none_or(|allows| allows != "true")
}

/// Reads the next [`PART_BYTES`] of the content, or the rest if it is shorter.
fn read_part(content: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut part = Vec::new();
    content.take(PART_BYTES as u64).read_to_end(&mut part)?;
    Ok(part)
}

impl ArchiveStore for ObjectArchive {
    fn url(&self) -> &str {
        &self.url
    }

    fn put(&self, name: &str, content: &mut dyn Read) -> io::Result<()> {
        let path = self.path(name)?;
        let first = read_part(content)?;
        let put = match first.len() < PART_BYTES {
            true => {
                let (store, location) = (Arc::clone(&self.store), path.clone());
                self.wait(async move { store.put(&location, PutPayload::from(first)).await }).map(drop)
            }
            false => self.put_parts(&path, first, content),
        };
        put.map_err(no_bucket)?;
        self.remove_staged(&path);
        Ok(())
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let (store, path) = (Arc::clone(&self.store), self.path(name)?);
        let range = offset..offset.saturating_add(buffer.len() as u64);
        let bytes = self.wait(async move { store.get_range(&path, range).await })?;
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        let (store, path) = (Arc::clone(&self.store), self.path(name)?);
        Ok(self.wait(async move { store.head(&path).await })?.size)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<ArchiveObject>> {
        let store = Arc::clone(&self.store);
        let path = self.path(folder)?;
        let objects = self.wait(async move { store.list(Some(&path)).try_collect::<Vec<_>>().await });
        let strip = |path: &ObjectPath| {
            let rest = path.as_ref().strip_prefix(&self.prefix)?;
            Some(rest.trim_start_matches('/').to_owned())
        };
        let named = |object: &object_store::ObjectMeta| {
            Some(ArchiveObject {
                name: strip(&object.location)?,
                bytes: object.size,
                modified: object.last_modified.into(),
            })
        };
        Ok(objects.map_err(no_bucket)?.iter().filter_map(named).collect())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        let (store, path) = (Arc::clone(&self.store), self.path(name)?);
        match self.wait(delete_object(store, path)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            deleted => deleted,
        }
    }
}

/// Removes an object. The S3 client does not repeat this request after a network failure, but removing an
/// object twice is harmless. Unlike S3, some stores return an error if the object does not exist. So after an
/// error, this function checks whether the object exists.
async fn delete_object(store: Arc<dyn ObjectStore>, path: ObjectPath) -> object_store::Result<()> {
    let mut tries = 0;
    loop {
        match store.delete(&path).await {
            Err(object_store::Error::Generic { .. }) if tries < RETRIES_MAX => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(100 << tries)).await;
                if matches!(store.head(&path).await, Err(object_store::Error::NotFound { .. })) {
                    return Ok(());
                }
            }
            done => return done,
        }
    }
}

impl Drop for ObjectArchive {
    fn drop(&mut self) {
        // Shut down without waiting. This code may run on a thread of another runtime, where blocking is not
        // allowed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn failure(kind: ErrorKind, reason: &dyn std::fmt::Display) -> io::Error {
    ArchiveFailure::error(kind, reason.to_string())
}

fn of_store(error: &object_store::Error) -> io::Error {
    use object_store::Error;
    let kind = match error {
        Error::NotFound { .. } => ErrorKind::NotFound,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => ErrorKind::PermissionDenied,
        Error::InvalidPath { .. } | Error::NotSupported { .. } | Error::UnknownConfigurationKey { .. } => {
            ErrorKind::InvalidInput
        }
        _ => ErrorKind::Other,
    };
    failure(kind, error)
}

/// Translates the error "not found" of uploads and listings. These requests do not need an existing object,
/// so the error means that the bucket does not exist.
fn no_bucket(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::NotFound => ArchiveFailure::error(ErrorKind::InvalidInput, error.to_string()),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_bucket_or_a_folder() {
        let error = |url: &str| ObjectArchive::open_existing(&ArchiveAddress::at(url)).unwrap_err();
        assert_eq!(error("https://bucket/x").kind(), ErrorKind::InvalidInput);
        assert_eq!(error("s3://").kind(), ErrorKind::InvalidInput);
        let secret = error("s3://key:secret@bucket/x");
        assert!(secret.to_string().contains("credentials only in the environment"), "{secret}");
        let plain =
            ArchiveAddress { endpoint: Some("http://store".into()), ..ArchiveAddress::at("s3://bucket/x") };
        let error_of = |address| ObjectArchive::open_existing(address).map(drop).unwrap_err().to_string();
        assert!(error_of(&plain).contains("AWS_ALLOW_HTTP"), "{}", error_of(&plain));
        let allowed = ArchiveAddress { allow_http: Some(true), ..plain };
        assert!(ObjectArchive::open_existing(&allowed).is_ok());
        assert_eq!(error("/nonexistent/folder").kind(), ErrorKind::NotFound);
        let relative = ArchiveAddress::at("backups").relative_to(Path::new("/etc/tailwater"));
        assert_eq!(relative.folder(), Some(Path::new("/etc/tailwater/backups")));
        for absolute in ["s3://bucket/prefix", "file:///srv/archive", "/srv/archive"] {
            assert_eq!(ArchiveAddress::at(absolute).relative_to(Path::new("/etc")).url, absolute);
        }
    }

    #[tokio::test]
    async fn an_archive_can_be_used_from_within_another_runtime() {
        let folder = tempfile::tempdir().unwrap();
        let archive = ObjectArchive::open(&ArchiveAddress::at(&folder.path().display().to_string())).unwrap();
        archive.put("a/x", &mut b"content".as_slice()).unwrap();
        let mut buffer = [0; 20];
        assert_eq!(archive.read_at("a/x", &mut buffer, 3).unwrap(), 4);
        drop(archive);
    }

    #[test]
    fn a_folder_keeps_objects_of_any_size() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}/new", folder.path().display());
        let archive = ObjectArchive::open(&ArchiveAddress::at(&url)).unwrap();
        assert_eq!(archive.list("a").unwrap(), []);
        // Create a temporary file as a killed upload leaves it.
        std::fs::create_dir(folder.path().join("new/a")).unwrap();
        std::fs::write(folder.path().join("new/a/x#1"), "half").unwrap();
        for bytes in [0, 10, PART_BYTES, 2 * PART_BYTES + 5] {
            let content: Vec<u8> = (0..bytes).map(|at| (at / 3) as u8).collect();
            archive.put("a/x", &mut content.as_slice()).unwrap();
            assert_eq!(archive.length("a/x").unwrap(), bytes as u64);
            let mut read = vec![0; bytes];
            if bytes > 0 {
                assert_eq!(archive.read_at("a/x", &mut read, 0).unwrap(), bytes);
            }
            assert!(read == content);
            let listed = archive.list("a").unwrap();
            assert_eq!((listed.len(), listed[0].name.as_str(), listed[0].bytes), (1, "a/x", bytes as u64));
            assert_eq!(std::fs::read_dir(folder.path().join("new/a")).unwrap().count(), 1);
        }
        archive.delete("a/x").unwrap();
        archive.delete("a/x").unwrap();
        assert_eq!(archive.length("a/x").unwrap_err().kind(), ErrorKind::NotFound);
    }
}
