// The nvme tier of one rank: one preallocated file a path, striped, with a checksum for every tile and generations that survive the death
// of the process (under Durability::step also a power loss). offload/store_format.h is the page that says what lies where. parallel/
// opens it, carves its blobs in the same order each time, and commits. All I/O goes through the engine, which outlives the store, as the
// store outlives its blobs; Traffic counts tiles, not the store's own pages. Thread-safety: the blobs' as in offload/blob.h, while one
// thread commits, syncs or invalidates.
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

/// A folder of this run alone (ScratchFolder) and its share of the bytes, in proportion to the other weights: the path's measured speed.
struct StripePath {
  std::filesystem::path folder;
  u32 weight = 1;
};

/// /proc/sys/kernel/random/boot_id; empty where there is none.
std::string current_boot_id();

struct StoreDescription {
  std::vector<StripePath> paths;
  std::string run_id;        // at most kMaxRunIdBytes
  u64 layout_hash = 0;       // whatever decides which bytes lie where: another one finds no old state
  i64 data_bytes = 0;        // of all blobs, all slots
  i64 passing_bytes = 0;     // of these, those of blobs that are not persistent: they lie last, and an old store is made to fit them
  i64 persistent_tiles = 0;  // of all persistent blobs, one slot
  Durability durability = Durability::checkpoint;
  i64 stripe_unit_bytes = kStripeUnitBytes;
  std::string boot_id = current_boot_id();
  u64 newest_generation = ~u64{0};  // of a dead run: a later commit, which other ranks may lack, is given up for the one before
  bool anew = false;                // what is there is set aside whatever it holds, and nothing is gone on from
};

/// The shares of the --nvme paths in what a dead run left, by the whole header of the first path's folder; empty without one.
std::vector<u32> kept_weights(const std::filesystem::path& folder);

/// What the files of such a store take together.
i64 store_bytes(const StoreDescription& description);

struct Commit {
  u64 generation = 0;
  std::string record;  // opaque here: step, data cursor, loss scale
};

class NvmeStore {
 public:
  /// Opens what a dead run left when it is whole, was made for the same description (the old files' weights are kept, not compared, and
  /// the files grow or shrink to other passing_bytes) and holds a usable commit; else the one that was set aside earlier and fits, of
  /// several the one written last; else creates the files anew. Whatever else lies at the paths and may hold a commit, a store that does
  /// not fit or a damaged file, is set aside first (ScratchFolder's orphans); only what holds none is replaced. Death at any instant loses
  /// nothing. Errors: Error(usage) for an unusable path; Error(refused) without room, nothing stays behind; Error(data) for a newer
  /// program's file on any path, and all stays as it is, anew or not; Error(io).
  static NvmeStore open_or_create(IoEngine& engine, Traffic& traffic, const StoreDescription& description);
  NvmeStore(NvmeStore&&) noexcept;
  NvmeStore& operator=(NvmeStore&&) = delete;
  ~NvmeStore();

  /// The newest commit. After opening it is what the dead run left: blobs carved persistent hold that generation.
  const std::optional<Commit>& last_commit() const;
  /// One line on why nothing old is used; empty when something is.
  const std::string& why_new() const;
  /// One line on what opening moved, aside or back; mostly empty.
  const std::string& moved() const;
  /// Of all files.
  i64 bytes() const;

  /// The next bytes of the data space. The tiles of persistent blobs (weights, optimizer state) have their checksums in the files; the
  /// others (gradients, activations) have one slot, come after them and mean nothing after a restart. A persistent blob of one slot (frozen
  /// weights) is never written again once committed. `tile_bytes` is a multiple of kDirectAlignment. Error(bug) beyond what the description
  /// announced.
  std::unique_ptr<Blob> make_blob(std::string what, TileRange tiles, i64 tile_bytes, int slots, bool persistent);

  /// Makes `generation` what a restart finds, with `record` of at most kMaxRecordBytes. All its writes have completed; every persistent
  /// tile is stamped for it. The generation is the last committed one (a new record for the same bytes) or the next; any after
  /// invalidate(). Errors: Error(bug) for a broken promise; Error(io), and the last commit still holds.
  void commit(u64 generation, std::string_view record);
  /// Puts all completed writes beyond the reach of a power loss. Errors: Error(io).
  void sync();
  /// A restart finds nothing, and any generation may be written next. For a checksum error. Best effort: I/O errors are ignored.
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
