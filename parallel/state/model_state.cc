#include "parallel/state/model_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "base/error.h"
#include "device/stream.h"
#include "parallel/comm/pending.h"
#include "parallel/state/stopwatch.h"

namespace spillway::parallel {
namespace {

constexpr i64 kViewTiles = 64;  // number of tiles passed to `body` at once if nothing has to be staged
constexpr size_t kReadAhead = 2;
constexpr i64 kWindowBytes = 4 * kMiB;
constexpr size_t kWindowsWritten = 2;  // the number of windows (ranges of tiles) that are being written at the same time

size_t bytes_of(const offload::Blob& blob, TileRange range) { return static_cast<size_t>(range.count() * blob.tile_bytes()); }

// Describes whole tiles that are moved and verified together. `begin` is where they begin in the bytes of the whole range.
struct Window {
  TileRange range;
  size_t begin = 0, bytes = 0;
};

// Cuts a range into windows. A range that lies in memory is a single window.
std::vector<Window> windows(const offload::Blob& blob, TileRange range) {
  const i64 tiles = blob.tier() == Tier::nvme ? std::max<i64>(1, kWindowBytes / blob.tile_bytes()) : std::max<i64>(1, range.count());
  std::vector<Window> all;
  for (i64 t = range.begin; t < range.end; t += tiles) {
    const TileRange part{t, std::min(range.end, t + tiles)};
    all.push_back(
        {part, static_cast<size_t>((t - range.begin) * blob.tile_bytes()), static_cast<size_t>(part.count() * blob.tile_bytes())});
  }
  return all;
}

}  // namespace

ModelState::ModelState(const Plan& plan, const Resources& resources) : plan_(plan), resources_(resources) {
  if (plan.on_gpu()) queues_.emplace(Device::cuda(resources.gpu));
  if (plan.uses(Tier::nvme)) open_store();
  const optim::StateFormat& format = plan.scheduling.format;
  // makes the blobs that a restart recovers first, then those that a restart may place differently
  for (const Group& g : plan.layout.groups) {
    const Tier weights = plan.placement.parameters[g.id], state = plan.placement.optimizer[g.id];
    optimizer_.emplace_back();
    weights_.push_back(make(weights, fmt::format("weights of group {}", g.id), plan.held_weights(g), format.weight_tile_bytes(),
                            plan.weight_slots(g), true));
    if (!plan.has_state(g)) continue;
    optimizer_.back() =
        make(state, fmt::format("optimizer state of group {}", g.id), plan.stepped(g), plan.state_tile_bytes(g), plan.slots(state), true);
  }
  make_gradients();
  if (plan.whole_bytes > 0) whole_ = resources.host->allocate(plan.whole_bytes, "parameter under way");
  if (plan.whole_gpu_bytes > 0) whole_on_gpu_ = resources.device->allocate(plan.whole_gpu_bytes, "matrix under way");
  if (plan.streamed_bytes > 0) update_stream_.emplace(plan, Device::cuda(resources.gpu), *resources.device, *queues_);
  if (plan.training) make_activations();
  if (plan.staging_buffers > 0) {
    staging_.emplace(*resources.host, static_cast<int>(plan.staging_buffers), plan.staging_buffer_bytes, "staging ring");
  }
}

void ModelState::open_store() {
  require(resources_.engine != nullptr && !resources_.scratch.empty(),
          "[model state] expected an I/O engine and at least one nvme path, because the plan stores data on nvme");
  offload::StoreDescription description = plan_.store;
  description.paths = resources_.scratch;
  description.run_id = resources_.run_id;
  description.durability = resources_.durability;
  description.newest_generation = resources_.newest_generation;
  description.anew = resources_.new_store;
  store_.emplace(offload::NvmeStore::open_or_create(*resources_.engine, traffic_, description));
  if (!store_->last_commit()) return;
  if (!plan_.recoverable()) return store_->invalidate();
  recovered_ = store_->last_commit()->record;
  generation_ = store_->last_commit()->generation;
}

std::string ModelState::why_not_recovered() const {
  if (!store_ || recovered_) return "";
  return plan_.recoverable() ? store_->why_new() : "not all weights and optimizer state are stored on nvme";
}

void ModelState::forget_recovered() {
  if (!recovered_) return;
  store_->invalidate();
  recovered_.reset();
  generation_ = 0;
}

std::string ModelState::damage_of_recovered() try {
  for (const Group& g : plan_.layout.groups) scan(g.id, [](TileRange, auto, auto) {});
  return "";
} catch (const offload::Spoilt& e) {
  return e.wrong();
}

void ModelState::make_gradients() {
  for (const Group& g : plan_.layout.groups) {
    for (u8 u = 0; plan_.has_gradient(g) && u < g.uses.size(); ++u) {
      if (!plan_.gradient_rests(g, u)) continue;
      gradients_[{g.id, u}] = make(plan_.placement.gradients[g.id], fmt::format("gradients of group {} use {}", g.id, u),
                                   plan_.held_gradients(g), kTileElems * size_of(plan_.resting_gradient({g.id, u})), 1, false);
    }
  }
}

void ModelState::make_activations() {
  const Scheduling& scheduling = plan_.scheduling;
  for (u16 b = 0; b < scheduling.spilled_bytes.size(); ++b) {
    const Tier tier = plan_.placement.activations[b].tier;
    const i64 tiles = scheduling.spilled_tiles(b);
    if (!scheduling.activations_travel(tier) || plan_.live[b] * tiles == 0) continue;
    activations_[b] =
        make(tier, fmt::format("activations of block {}", b), {0, plan_.live[b] * tiles}, scheduling.spilled_bytes[b] / tiles, 1, false);
  }
}

std::unique_ptr<offload::Blob> ModelState::make(Tier tier, const std::string& what, TileRange tiles, i64 tile_bytes, int slots,
                                                bool persistent) {
  // a rank that holds none of these tiles may have no store, so its empty blob is in host memory
  if (tiles.count() == 0) tier = Tier::host;
  if (tier == Tier::nvme) return store_->make_blob(what, tiles, tile_bytes, slots, persistent);
  MemoryPool& pool = tier == Tier::device ? *resources_.device : *resources_.host;
  return offload::make_memory_blob(tier, pool, what, tiles, tile_bytes, slots, traffic_, queues());
}

// Requests all windows (ranges of tiles) at the same time, and verifies those that have arrived while the others are being read.
double ModelState::read(offload::Blob& blob, TileRange range, std::span<std::byte> into) {
  std::deque<Pending> reads;
  double moving_us = microseconds_of([&] {
    for (const Window& w : windows(blob, range)) {
      reads.emplace_back().add(blob.read(w.range, generation_, into.subspan(w.begin, w.bytes), {.priority = offload::Priority::urgent}));
    }
  });
  for (const Window& w : windows(blob, range)) {
    moving_us += microseconds_of([&] { reads.front().wait(); });
    reads.pop_front();
    verify(blob, w.range, generation_, into.subspan(w.begin, w.bytes));
  }
  return moving_us;
}

// Writes only a few windows (ranges of tiles) at the same time. A burst of writes would delay the writes of the optimizer's updates, and
// with them the reads of later updates.
double ModelState::write(offload::Blob& blob, TileRange range, std::span<const std::byte> from) {
  std::deque<Pending> writes;
  double moving_us = 0;
  const auto settle = [&](size_t most) {
    for (; writes.size() > most; writes.pop_front()) moving_us += microseconds_of([&] { writes.front().wait(); });
  };
  for (const Window& w : windows(blob, range)) {
    const auto bytes = from.subspan(w.begin, w.bytes);
    blob.stamp(w.range, generation_, bytes);
    settle(kWindowsWritten - 1);
    moving_us += microseconds_of([&] { writes.emplace_back().add(blob.write(w.range, generation_, bytes)); });
  }
  settle(0);
  return moving_us;
}

void ModelState::verify(offload::Blob& blob, TileRange range, u64 generation, std::span<std::byte> bytes) {
  std::string first;
  try {
    return blob.verify(range, generation, bytes);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::io) throw;
    first = e.what();
  }
  // Reads the bytes a second time. An I/O error of this read does not mean that the bytes are damaged, so the store stays valid then.
  blob.read(range, generation, bytes, {.priority = offload::Priority::urgent}).wait();
  try {
    blob.verify(range, generation, bytes);
  } catch (...) {
    std::lock_guard lock(store_mutex_);
    if (blob.is_committed(generation)) store_->invalidate();
    throw;
  }
  std::lock_guard lock(store_mutex_);
  ++rereads_;
  last_reread_ = std::move(first);
}

std::string ModelState::take_rereads() {
  std::lock_guard lock(store_mutex_);
  const i64 times = std::exchange(rereads_, 0);
  if (times == 0) return "";
  return fmt::format("data read from nvme had a wrong checksum, but was correct when it was read again (this happened {} time{}): {}",
                     times, times == 1 ? "" : "s", last_reread_);
}

void ModelState::commit(u64 generation, std::string_view record) {
  if (!store_ || !plan_.recoverable()) return;
  std::lock_guard lock(store_mutex_);
  store_->commit(generation, record);
}

std::vector<TileRange> ModelState::chunks(u16 group) const {
  const bool staged = weights_[group]->is_staged() || (optimizer_[group] && optimizer_[group]->is_staged());
  const TileRange held = weights_[group]->held();
  const TileRange own = optimizer_[group] ? optimizer_[group]->held() : held;
  std::vector<TileRange> all;
  for (const TileRange part : {TileRange{held.begin, own.begin}, own, TileRange{own.end, held.end}}) {
    for (const TileRange piece : pieces(part, staged)) all.push_back(piece);
  }
  return all;
}

// Cuts tiles into pieces. If the data has to be staged, each piece fits a buffer of the staging ring.
std::vector<TileRange> ModelState::pieces(TileRange tiles, bool staged) const {
  const i64 step = staged ? plan_.chunk_tiles : kViewTiles;
  std::vector<TileRange> all;
  for (i64 t = tiles.begin; t < tiles.end; t += step) all.push_back({t, std::min(tiles.end, t + step)});
  return all;
}

// Describes a chunk of a group's weights and state, either where the chunk lies or in a buffer of the ring.
struct ModelState::Piece {
  struct Part {
    offload::Blob* blob = nullptr;
    std::span<std::byte> bytes;
    bool staged = false;
  };
  TileRange range;
  std::optional<offload::StagingRing::Lease> lease;
  Part weights, state;
  Pending moving;  // declared after the loan of the buffer, so that transfers are complete before the buffer is returned
};

bool ModelState::holds_state(u16 group, TileRange range) const {
  return optimizer_[group] && intersection(optimizer_[group]->held(), range).count() > 0;
}

ModelState::Piece ModelState::open(u16 group, TileRange range, u64 generation, Kinds kinds) {
  Piece piece;
  piece.range = range;
  size_t used = 0;
  const auto part = [&](offload::Blob& blob) -> Piece::Part {
    if (!blob.is_staged()) return {&blob, blob.view(range, generation), false};
    if (!piece.lease) piece.lease.emplace(staging_->acquire());
    const auto bytes = piece.lease->bytes().subspan(used, bytes_of(blob, range));
    used += bytes.size();
    return {&blob, bytes, true};
  };
  piece.weights = part(*weights_[group]);
  if (kinds == Kinds::all && holds_state(group, range)) piece.state = part(*optimizer_[group]);
  return piece;
}

void ModelState::scan(u16 group, const Scan& body) { scan(group, chunks(group), generation_, body); }

void ModelState::scan(u16 group, std::span<const TileRange> ranges, u64 generation, const Scan& body) {
  scan(group, ranges, generation, Kinds::all, body);
}

void ModelState::scan_weights(u16 group, TileRange tiles, const Scan& body) {
  scan(group, pieces(tiles, weights_[group]->is_staged()), generation_, Kinds::weights, body);
}

void ModelState::scan(u16 group, std::span<const TileRange> ranges, u64 generation, Kinds kinds, const Scan& body) {
  std::deque<Piece> ahead;
  const auto finish_one = [&] {
    Piece& piece = ahead.front();
    piece.moving.wait();
    for (const Piece::Part* p : {&piece.weights, &piece.state}) {
      if (p->staged) verify(*p->blob, piece.range, generation, p->bytes);
    }
    body(piece.range, piece.weights.bytes, piece.state.bytes);
    ahead.pop_front();
  };
  for (const TileRange& r : ranges) {
    ahead.push_back(open(group, r, generation, kinds));
    for (const Piece::Part* p : {&ahead.back().weights, &ahead.back().state}) {
      if (p->staged) ahead.back().moving.add(p->blob->read(r, generation, p->bytes, {.for_save = true}));
    }
    if (ahead.size() > kReadAhead) finish_one();
  }
  while (!ahead.empty()) finish_one();
}

void ModelState::fill(u16 group, const Fill& body) {
  std::deque<Piece> behind;
  for (const TileRange& r : chunks(group)) {
    if (behind.size() > kReadAhead) {
      behind.front().moving.wait();
      behind.pop_front();
    }
    Piece piece = open(group, r, generation_, Kinds::all);
    body(r, piece.weights.bytes, piece.state.bytes);
    for (const Piece::Part* p : {&piece.weights, &piece.state}) {
      if (!p->staged) continue;
      p->blob->stamp(r, generation_, p->bytes);
      piece.moving.add(p->blob->write(r, generation_, p->bytes));
    }
    behind.push_back(std::move(piece));
  }
  for (Piece& piece : behind) piece.moving.wait();
}

}  // namespace spillway::parallel
