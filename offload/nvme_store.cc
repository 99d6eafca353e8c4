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
        data_bytes(description.data_bytes) {}

  // A persistent blob's place in the tables.
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
  const i64 data_bytes;
  i64 carved_bytes = 0, carved_tiles = 0;
  std::vector<Entry> persistent;
  std::optional<Commit> last;
  std::string why_new, moved;
};

// After a restart the blob knows the checksums of the committed generation.
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
        throw Error(ErrorCode::bug, fmt::format("[store] tile {} of {} was not written for generation {}, which is to be committed", t,
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
  return state->last ? std::move(state) : nullptr;
}

std::unique_ptr<NvmeStore::State> NvmeStore::find_aside(IoEngine& engine, Traffic& traffic, const StoreDescription& description) {
  for (const u64 id : stores_aside(description)) {
    std::string why;
    if (!open(engine, traffic, aside(description, id), why)) continue;
    bring_back(description, id);
    auto state = open(engine, traffic, description, why);
    if (state) state->moved = "what was set aside earlier fits this run and is back";
    return state;
  }
  return nullptr;
}

NvmeStore NvmeStore::open_or_create(IoEngine& engine, Traffic& traffic, const StoreDescription& description) {
  check(description);
  std::string why, moved;
  if (auto state = open(engine, traffic, description, why)) return NvmeStore(std::move(state));
  if (const std::vector<std::filesystem::path> places = set_aside(description); !places.empty())
    moved = fmt::format("set aside as {}", fmt::join(strings(places), ", "));
  if (auto state = find_aside(engine, traffic, description)) return NvmeStore(std::move(state));
  try {
    auto state = std::make_unique<State>(create_files(engine, description), traffic, description);
    state->why_new = std::move(why);
    state->moved = std::move(moved);
    return NvmeStore(std::move(state));
  } catch (const Error& e) {
    if (e.code() != ErrorCode::refused || moved.empty()) throw;
    throw Error(e.code(), fmt::format("{}; what an earlier start of this run left there did not fit ({}) and is {}: go on as it was "
                                      "started then, or give that up with spillway doctor --reclaim",
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
  const bool fits = sensible && slots * tiles * tile_bytes <= s.data_bytes - s.carved_bytes &&
                    (!persistent || tiles <= s.files.persistent_tiles() - s.carved_tiles);
  if (!fits) {
    throw Error(ErrorCode::bug,
                fmt::format("[store] {}: {} slots of {} {} tiles of {} bytes were not announced: {} bytes and {} tiles are left", what,
                            slots, tiles, persistent ? "persistent" : "passing", tile_bytes, s.data_bytes - s.carved_bytes,
                            s.files.persistent_tiles() - s.carved_tiles));
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
    throw Error(ErrorCode::bug, fmt::format("[store] generation {} cannot be committed after {}", generation, s.last->generation));
  }
  s.fill_table(generation);
  s.log.commit(generation, record, again);
  s.note(Commit{generation, std::string(record)});
}

void NvmeStore::sync() { state_->files.flush(); }

void NvmeStore::invalidate() noexcept {
  try {
    state_->log.clear();
  } catch (...) {  // the drive is failing: verify() says so again after a restart
  }
  state_->note(std::nullopt);
}

}  // namespace spillway::offload
