#include "parallel/snapshot.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace spillway::parallel {
namespace {

double seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

void copy(std::span<const std::byte> from, std::byte* to) { std::memcpy(to, from.data(), from.size()); }

}  // namespace

void Snapshot::Copy::put(i64 tile, std::span<const std::byte> weight_tile, std::span<const std::byte> state_tile) {
  copy(weight_tile, weights.data() + tile * std::ssize(weight_tile));
  copy(state_tile, state.data() + tile * std::ssize(state_tile));
}

Snapshot::Snapshot(const Plan& plan, ModelState& state, offload::StagingRing& queue, Save save)
    : plan_(plan), state_(state), ring_(queue), generation_(state.generation()) {
  for (const Bucket& b : plan.layout.buckets) {
    first_piece_.push_back(pieces_.size());
    const i64 first = b.begin / kTileElems, end = first + b.tiles;
    for (i64 t = first; t < end; t += plan.chunk_tiles) pieces_.push_back({b.group, {t, std::min(end, t + plan.chunk_tiles)}});
  }
  for (const Group& g : plan.layout.groups) {
    if (!g.frozen) continue;
    for (i64 t = 0, end = g.elems / kTileElems; t < end; t += plan.chunk_tiles)
      pieces_.push_back({g.id, {t, std::min(end, t + plan.chunk_tiles)}});
    if (staged(g.id) && !reading_) reading_.emplace(ring_.acquire());
  }
  left_ = unwalked_ = pieces_.size();
  thread_ = std::thread([this, save = std::move(save)] { run(save); });
}

Snapshot::~Snapshot() {
  {
    std::lock_guard lock(mutex_);
    given_up_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool Snapshot::staged(u16 group) const {
  return state_.weights(group).tier() == Tier::nvme || (!frozen(group) && state_.optimizer(group).tier() == Tier::nvme);
}

u64 Snapshot::due(u16 group) const {
  const bool in_place = state_.weights(group).slots() == 1 || state_.optimizer(group).slots() == 1;
  return staged(group) || in_place ? generation_ : generation_ + 1;
}

std::optional<Snapshot::Copy> Snapshot::before(const Bucket& bucket, TileRange range, u64 from) {
  const size_t number = first_piece_[bucket.id] + static_cast<size_t>((range.begin - bucket.begin / kTileElems) / plan_.chunk_tiles);
  std::unique_lock lock(mutex_);
  Piece& piece = pieces_[number];
  if (over_ || piece.stage == Stage::taken || from < due(bucket.group)) return {};
  require(!staged(bucket.group) || from == generation_, "[snapshot] a step passed by a piece that was to be handed over");
  const auto start = Clock::now();
  wanted_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return over_ || piece.stage != Stage::busy; });
  std::optional<Copy> taken;
  if (!over_ && piece.stage == Stage::pending) {
    piece.stage = Stage::taken;
    lock.unlock();
    taken.emplace(room_for(number));
    if (!staged(bucket.group)) {
      copy_from_memory(*taken);
      hand_over(std::move(*taken));
      taken.reset();
    }
    lock.lock();
  }
  wanted_ = false;
  outcome_.blocked_s += seconds(Clock::now() - start);
  return taken;
}

Snapshot::Copy Snapshot::room_for(size_t number) {
  const Piece& piece = pieces_[number];
  Copy room{number, ring_.acquire(), {}, {}};
  const auto bytes = [&](const offload::Blob& blob) { return static_cast<size_t>(piece.range.count() * blob.tile_bytes()); };
  room.weights = room.lease.bytes().first(bytes(state_.weights(piece.group)));
  room.state = room.lease.bytes().subspan(room.weights.size(), bytes(state_.optimizer(piece.group)));
  return room;
}

void Snapshot::copy_from_memory(Copy& to) {
  const Piece& piece = pieces_[to.piece];
  copy(state_.weights(piece.group).view(piece.range, generation_), to.weights.data());
  copy(state_.optimizer(piece.group).view(piece.range, generation_), to.state.data());
}

void Snapshot::hand_over(Copy copy) {
  {
    std::lock_guard lock(mutex_);
    if (over_) return;
    queue_.push_back(std::move(copy));
  }
  changed_.notify_all();
}

void Snapshot::drain() {
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
  }
  changed_.notify_all();
  std::exception_ptr unreadable;
  try {
    for (const Group& g : plan_.layout.groups) {
      if (!walked(g.id)) drain_group(g.id);
    }
  } catch (...) {
    unreadable = std::current_exception();
  }
  std::unique_lock lock(mutex_);
  given_up_ |= unreadable != nullptr;
  changed_.notify_all();
  changed_.wait(lock, [&] { return over_; });
  if (unreadable) outcome_.error = unreadable;
}

void Snapshot::drain_group(u16 group) {
  std::vector<size_t> numbers;
  std::vector<TileRange> ranges;
  {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (over_ || pieces_[i].group != group || pieces_[i].stage != Stage::pending) continue;
      pieces_[i].stage = Stage::taken;
      numbers.push_back(i);
      ranges.push_back(pieces_[i].range);
    }
  }
  auto number = numbers.begin();
  state_.scan(group, ranges, generation_, [&](TileRange, std::span<const std::byte> weights, std::span<const std::byte> state) {
    Copy room = room_for(*number++);
    copy(weights, room.weights.data());
    copy(state, room.state.data());
    hand_over(std::move(room));
  });
}

bool Snapshot::over() const {
  std::lock_guard lock(mutex_);
  return over_;
}

// From here on the snapshot's own thread.
void Snapshot::run(const Save& save) {
  std::exception_ptr error;
  try {
    save([this](const Visit& visit) { deliver(visit); });
  } catch (...) {
    error = std::current_exception();
  }
  {
    std::lock_guard lock(mutex_);
    queue_.clear();
    outcome_.error = error;
    outcome_.seconds = seconds(Clock::now() - begin_);
    outcome_.writing_s = outcome_.seconds - idle_s_;
    over_ = true;
  }
  changed_.notify_all();
}

// The disk is shared with training: after each piece the save rests as long as the piece took, unless somebody waits for it.
void Snapshot::deliver(const Visit& visit) {
  std::unique_lock lock(mutex_);
  while (left_ > 0) {
    Piece* next = nullptr;
    wait(
        lock, [&] { return given_up_ || !queue_.empty() || (next = next_walked()); }, Clock::duration::max());
    if (given_up_ && queue_.empty()) throw Error(ErrorCode::io, "[snapshot] the save was given up");
    const auto start = Clock::now();
    if (queue_.empty()) {
      visit_walked(lock, visit, *next);
    } else {
      visit_copy(lock, visit);
    }
    --left_;
    wait(
        lock, [&] { return wanted_ || draining_ || given_up_; }, Clock::now() - start);
  }
}

void Snapshot::visit_copy(std::unique_lock<std::mutex>& lock, const Visit& visit) {
  const Copy copy = std::move(queue_.front());
  queue_.pop_front();
  const Piece& piece = pieces_[copy.piece];
  lock.unlock();
  visit(piece.group, piece.range, copy.weights, copy.state);
  lock.lock();
}

void Snapshot::visit_walked(std::unique_lock<std::mutex>& lock, const Visit& visit, Piece& piece) {
  piece.stage = Stage::busy;
  lock.unlock();
  const auto weights = at_rest(state_.weights(piece.group), piece.range);
  visit(piece.group, piece.range, weights,
        frozen(piece.group) ? std::span<const std::byte>() : at_rest(state_.optimizer(piece.group), piece.range));
  lock.lock();
  piece.stage = Stage::taken;
  changed_.notify_all();
}

std::span<const std::byte> Snapshot::at_rest(offload::Blob& blob, TileRange range) {
  if (blob.tier() != Tier::nvme) return blob.view(range, generation_);
  const auto bytes = reading_->bytes().first(static_cast<size_t>(range.count() * blob.tile_bytes()));
  blob.read(range, generation_, bytes).wait();
  state_.verify(blob, range, generation_, bytes);
  return bytes;
}

// Backwards, as the Steps after backward come forwards.
Snapshot::Piece* Snapshot::next_walked() {
  for (; unwalked_ > 0; --unwalked_) {
    Piece& piece = pieces_[unwalked_ - 1];
    if (piece.stage == Stage::pending && walked(piece.group)) return &piece;
  }
  return nullptr;
}

void Snapshot::wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& until, Clock::duration at_most) {
  const auto start = Clock::now();
  if (at_most == Clock::duration::max()) {
    changed_.wait(lock, until);
  } else {
    changed_.wait_until(lock, start + at_most, until);
  }
  idle_s_ += seconds(Clock::now() - start);
}

}  // namespace spillway::parallel
