// An NvmeStore is the nvme tier of one rank. It keeps one preallocated file per --nvme path, stripes the data over them, and keeps a
// checksum for every tile, and generations (versions of the data) that survive the death of the process (under Durability::step also a
// power loss). offload/store_format.h documents the file format. parallel/ opens the store, allocates its blobs in the same order each
// time, and commits. All I/O goes through the engine. The engine must outlive the store, and the store must outlive its blobs. Traffic
// counts the bytes of tiles, not those of headers, superblocks and checksum tables. Thread-safety: blobs are as safe as offload/blob.h
// says; commit(), sync() and invalidate() are called by one thread.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "offload/blob.h"
#include "offload/store_format.h"

namespace spillway::offload {

/// Names one folder that only this run uses (ScratchFolder), and its weight. The folder gets weight / (sum of all
/// weights) of the bytes, so the weight is chosen in proportion to the measured speed of the path.
struct StripePath {
  std::filesystem::path folder;
  u32 weight = 1;
};

/// Returns the content of /proc/sys/kernel/random/boot_id, or an empty string if there is no such file.
std::string current_boot_id();

struct StoreDescription {
  std::vector<StripePath> paths;
  std::string run_id;   // id of the run, of at most kMaxRunIdBytes bytes
  u64 layout_hash = 0;  // hash of everything that decides which bytes lie where; a store with another hash is not used
  i64 data_bytes = 0;   // total bytes of all blobs, with all slots (blob.h)
  // Counts the part of data_bytes that belongs to blobs that are not persistent. These blobs lie
  // behind the persistent ones, and an existing store is resized to hold them.
  i64 passing_bytes = 0;
  i64 persistent_tiles = 0;  // number of tiles of all persistent blobs together, each counted once, even if its blob has two slots
  Durability durability = Durability::checkpoint;
  i64 stripe_unit_bytes = kStripeUnitBytes;
  std::string boot_id = current_boot_id();
  // The newest generation (version of the data) of a dead run that may be used. A later commit is discarded in favour of the one before,
  // because other ranks may lack the later one.
  u64 newest_generation = ~u64{0};
  bool anew = false;  // true: existing files are set aside, whatever they hold, and the store starts empty
};

/// Returns the weights of the paths (StripePath::weight) with which a dead run made its store. They are read from the store's file in
/// `folder`, the folder of the first path. The result is empty if that file has no valid header of this version.
std::vector<u32> kept_weights(const std::filesystem::path& folder);

/// Returns the total size in bytes of the files of a store with this description.
i64 store_bytes(const StoreDescription& description);

struct Commit {
  u64 generation = 0;
  std::string record;  // text that the store keeps but does not interpret: step, data cursor, loss scale
};

class NvmeStore {
 public:
  /// Opens the store that a dead run left, if it is undamaged, was made for the same description and holds a usable commit. Two differences
  /// are allowed: the weights of the old files are kept, and the files grow or shrink to the new passing_bytes. Otherwise opens the store
  /// that fits among those that were set aside earlier; if several fit, the one written last. Otherwise creates new files. Before that,
  /// whatever lies at the paths and may hold a commit (a store that does not fit, a damaged file) is set aside, where list_orphans finds
  /// it; only files without a commit are replaced. If the process dies at any instant, no commit is lost. Errors: Error(usage) for an
  /// unusable path; Error(refused) if there is no room, and then no new file stays behind; Error(data) if a newer program's file lies on
  /// any path, and then nothing is changed, even if `anew` is set; Error(io).
  static NvmeStore open_or_create(IoEngine& engine, Traffic& traffic, const StoreDescription& description);
  NvmeStore(NvmeStore&&) noexcept;
  NvmeStore& operator=(NvmeStore&&) = delete;
  ~NvmeStore();

  /// Returns the newest commit, or nothing if the store is new. If open_or_create() opened an existing store, this is the dead run's
  /// commit, and the persistent blobs hold the committed data.
  const std::optional<Commit>& last_commit() const;
  /// Returns one line that says why no existing store is used, or an empty string if one is used.
  const std::string& why_new() const;
  /// Returns one line about the files that open_or_create() set aside or brought back. The line is usually empty.
  const std::string& moved() const;
  /// Returns the total size of all files in bytes.
  i64 bytes() const;

  /// Allocates the next bytes of the data space for a blob. The checksums of persistent blobs (weights, optimizer state) are kept in the
  /// files. Other blobs (gradients, activations) have one slot, must be allocated after the persistent ones, and hold nothing of use after
  /// a restart. A persistent blob of one slot (frozen weights) is never written again once it is committed. `tile_bytes` is a multiple of
  /// kDirectAlignment. Throws Error(bug) if the blob exceeds what the description announced.
  std::unique_ptr<Blob> make_blob(std::string what, TileRange tiles, i64 tile_bytes, int slots, bool persistent);

  /// Commits a version of the data: `generation` and `record` (at most kMaxRecordBytes) become what a restart finds. Before the call all
  /// writes of the generation must have completed, and every persistent tile must be stamped for it. The generation must be the last
  /// committed one (which gives the same bytes a new record) or the next one; after invalidate() any generation is allowed. Errors:
  /// Error(bug) if a requirement is broken; Error(io), and then the last commit stays valid.
  void commit(u64 generation, std::string_view record);
  /// Makes all completed writes survive a power loss. Errors: Error(io).
  void sync();
  /// Erases the commits, so that a restart finds nothing and any generation (version of the data) may be written next. Called after a
  /// checksum error. Best effort: I/O errors are ignored.
  void invalidate() noexcept;

 private:
  struct State;
  explicit NvmeStore(std::unique_ptr<State> state);
  static std::unique_ptr<State> open(IoEngine& engine, Traffic& traffic, const StoreDescription& description, std::string& why);
  static std::unique_ptr<State> find_aside(IoEngine& engine, Traffic& traffic, const StoreDescription& description);
  static std::unique_ptr<State> create(IoEngine& engine, Traffic& traffic, const StoreDescription& description, std::string why,
                                       std::string moved);
  std::unique_ptr<State> state_;
};

}  // namespace spillway::offload
