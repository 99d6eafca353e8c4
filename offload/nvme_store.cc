#include "offload/nvme_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <utility>

#include "base/error.h"
#include "offload/commit_log.h"
#include "offload/store_aside.h"
#include "offload/striped_blob.h"

namespace spillway::offload {

std::string current_boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

namespace {

std::vector<std::string> strings(const std::vector<std::filesystem::path>& paths) { return {paths.begin(), paths.end()}; }

}  // namespace

struct NvmeStore::State {
  State(StoreFiles made, Traffic& traffic, const StoreDescription& description)
      : files(std::move(made)),
        log(files, description.durability, description.boot_id),
        home{files, traffic},
        persistent_bytes(description.data_bytes - description.passing_bytes),
        data_bytes(description.data_bytes) {}

  // Describes a persistent blob and its place in the checksum tables: `first` is the table index of the blob's first tile.
  struct Entry {
    std::string what;
    i64 first = 0;
    std::shared_ptr<TileChecksums> checksums;
  };

  void note(std::optional<Commit> commit) {
    last = std::move(commit);
    home.committed = last ? last->generation : kNeverCommitted;
  }
  std::shared_ptr<TileChecksums> enter(const std::string& what, i64 tiles, int slots);
  void fill_table(u64 generation);

  StoreFiles files;
  CommitLog log;
  BlobHome home;
  const i64 persistent_bytes, data_bytes;
  i64 carved_bytes = 0, carved_tiles = 0;
  std::vector<Entry> persistent;
  std::optional<Commit> last;
  std::string why_new, moved;
};

// Makes the TileChecksums of a persistent blob. If a commit was recovered, they are filled with the checksums of the committed version of
// the data (generation).
std::shared_ptr<TileChecksums> NvmeStore::State::enter(const std::string& what, i64 tiles, int slots) {
  auto checksums = std::make_shared<TileChecksums>(tiles, slots);
  for (i64 t = 0; last && t < tiles; ++t) {
    checksums->stamp(t, last->generation, log.table()[static_cast<size_t>(carved_tiles + t)]);
  }
  persistent.push_back({what, carved_tiles, checksums});
  carved_tiles += tiles;
  return checksums;
}

void NvmeStore::State::fill_table(u64 generation) {
  for (const Entry& entry : persistent) {
    for (i64 t = 0; t < entry.checksums->tiles(); ++t) {
      if (!entry.checksums->readable(t, generation)) {
        throw Error(ErrorCode::bug,
                    fmt::format("[store] tile {} of {} was not written for generation {}, but that generation is to be committed", t,
                                entry.what, generation));
      }
      log.table()[static_cast<size_t>(entry.first + t)] = entry.checksums->crc(t, generation);
    }
  }
}

NvmeStore::NvmeStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
NvmeStore::NvmeStore(NvmeStore&&) noexcept = default;
NvmeStore::~NvmeStore() = default;

std::unique_ptr<NvmeStore::State> NvmeStore::open(IoEngine& engine, Traffic& traffic, const StoreDescription& description,
                                                  std::string& why) {
  auto files = open_files(engine, description, why);
  if (!files) return nullptr;
  auto state = std::make_unique<State>(std::move(*files), traffic, description);
  state->note(state->log.recover(description.newest_generation, why));
  if (!state->last) return nullptr;
  state->files.fit();
  return state;
}

std::unique_ptr<NvmeStore::State> NvmeStore::find_aside(IoEngine& engine, Traffic& traffic, const StoreDescription& description) {
  for (const u64 id : stores_aside(description)) {
    std::string why;
    if (!open(engine, traffic, aside(description, id), why)) continue;
    bring_back(description, id);
    auto state = open(engine, traffic, description, why);
    if (!state)
      throw Error(ErrorCode::io,
                  fmt::format("[store] the files that were set aside earlier were restored but can no longer be read: {}", why));
    state->moved = "the files that were set aside earlier match this run and were restored";
    return state;
  }
  return nullptr;
}

NvmeStore NvmeStore::open_or_create(IoEngine& engine, Traffic& traffic, const StoreDescription& description) {
  check(description);
  refuse_newer(description);
  std::string why = "a new store was requested", moved;
  auto state = description.anew ? nullptr : open(engine, traffic, description, why);
  if (state) return NvmeStore(std::move(state));
  if (const std::vector<std::filesystem::path> places = set_aside(description); !places.empty())
    moved = fmt::format("set aside as {}", fmt::join(strings(places), ", "));
  if (!description.anew) state = find_aside(engine, traffic, description);
  if (state && !moved.empty()) state->moved = fmt::format("{}; the files that lay in their place are {}", state->moved, moved);
  if (state) return NvmeStore(std::move(state));
  return NvmeStore(create(engine, traffic, description, std::move(why), std::move(moved)));
}

std::unique_ptr<NvmeStore::State> NvmeStore::create(IoEngine& engine, Traffic& traffic, const StoreDescription& description,
                                                    std::string why, std::string moved) {
  try {
    auto state = std::make_unique<State>(create_files(engine, description), traffic, description);
    state->why_new = std::move(why);
    state->moved = std::move(moved);
    return state;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::refused || moved.empty()) throw;
    throw Error(e.code(), fmt::format("{}; the files of an earlier start of this run do not match this start ({}) and are {}: restart with "
                                      "the earlier options, or delete those files with spillway doctor --reclaim",
                                      e.what(), why, moved));
  }
}

const std::optional<Commit>& NvmeStore::last_commit() const { return state_->last; }
const std::string& NvmeStore::why_new() const { return state_->why_new; }
const std::string& NvmeStore::moved() const { return state_->moved; }
i64 NvmeStore::bytes() const { return state_->files.bytes(); }

std::unique_ptr<Blob> NvmeStore::make_blob(std::string what, TileRange held, i64 tile_bytes, int slots, bool persistent) {
  State& s = *state_;
  const i64 tiles = held.count();
  const bool sensible = tiles >= 0 && tile_bytes > 0 && tile_bytes % kDirectAlignment == 0 && (slots == 1 || (slots == 2 && persistent));
  const i64 left_bytes = (persistent ? s.persistent_bytes : s.data_bytes) - s.carved_bytes;
  const i64 left_tiles = s.files.persistent_tiles() - s.carved_tiles;
  const bool fits = sensible && slots * tiles * tile_bytes <= left_bytes && (persistent ? tiles <= left_tiles : left_tiles == 0);
  if (!fits) {
    throw Error(
        ErrorCode::bug,
        fmt::format(
            "[store] {}: expected room for {} slots of {} {} tiles of {} bytes, got {} bytes and {} tiles left in the planned store", what,
            slots, tiles, persistent ? "persistent" : "temporary", tile_bytes, left_bytes, left_tiles));
  }
  auto checksums = persistent ? s.enter(what, tiles, slots) : std::make_shared<TileChecksums>(tiles, slots);
  const i64 begin = s.carved_bytes;
  s.carved_bytes += slots * tiles * tile_bytes;
  return std::make_unique<StripedBlob>(s.home, std::move(what), begin, held.begin, tile_bytes, persistent, std::move(checksums));
}

void NvmeStore::commit(u64 generation, std::string_view record) {
  State& s = *state_;
  require(std::ssize(record) <= kMaxRecordBytes, "[store] expected a record of at most 3072 bytes");
  const bool again = s.last && generation == s.last->generation;
  if (s.last && !again && generation != s.last->generation + 1) {
    throw Error(ErrorCode::bug,
                fmt::format("[store] generation {} cannot be committed after generation {}", generation, s.last->generation));
  }
  s.fill_table(generation);
  s.log.commit(generation, record, again);
  s.note(Commit{generation, std::string(record)});
}

void NvmeStore::sync() { state_->files.flush(); }

void NvmeStore::invalidate() noexcept {
  try {
    state_->log.clear();
  } catch (...) {  // the drive is failing; the error is ignored, because verify() will report it after a restart
  }
  state_->note(std::nullopt);
}

}  // namespace spillway::offload
