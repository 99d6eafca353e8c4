#include "parallel/state/snapshot.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/thread.h"

namespace spillway::parallel {
namespace {

double seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

void copy(std::span<const std::byte> from, std::byte* to) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

}  // namespace

void Snapshot::Copy::put(i64 tile, std::span<const std::byte> weight_tile, std::span<const std::byte> state_tile) {
  copy(weight_tile, weights.data() + tile * std::ssize(weight_tile));
  copy(state_tile, state.data() + tile * std::ssize(state_tile));
}

Snapshot::Snapshot(const Plan& plan, ModelState& state, offload::StagingRing& queue, Save save, double patience_s)
    : plan_(plan),
      state_(state),
      pieces_(plan, state),
      ring_(queue),
      patience_s_(patience_s),
      stages_(pieces_.size(), Stage::pending),
      left_(pieces_.size()),
      unwalked_(pieces_.size()) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_.saved(i)) continue;
    stages_[i] = Stage::taken;
    --left_;
  }
  thread_ = start_thread([this, save = std::move(save)] { run(save); });
}

Snapshot::~Snapshot() {
  {
    std::lock_guard lock(mutex_);
    given_up_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::optional<Snapshot::Copy> Snapshot::before(const Bucket& bucket, TileRange range, u64 from) {
  const size_t number = pieces_.number(bucket, range);
  Lock lock(mutex_);
  const bool wanted = from >= pieces_.written_over_by(bucket.group) || (pieces_.staged(bucket.group) && from == pieces_.generation());
  if (ended(number) || !wanted) return {};
  const auto start = Clock::now();
  wanted_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return over_ || stages_[number] != Stage::busy; });
  std::optional<Copy> taken = ended(number) ? std::nullopt : take(lock, number, from);
  wanted_ = false;
  outcome_.blocked_s += seconds(Clock::now() - start);
  return taken;
}

// Takes a piece for the save. The piece is marked as taken before there is room for it, so that no other thread takes it meanwhile.
// Returns a Copy if an optimizer update has to fill it.
std::optional<Snapshot::Copy> Snapshot::take(Lock& lock, size_t number, u64 from) {
  const u16 group = pieces_[number].group;
  const bool by_step = pieces_.staged(group) && from == pieces_.generation();
  const bool now = from >= pieces_.written_over_by(group);
  const double patience_s = now ? kPatient : std::max(0.0, patience_s_ - outcome_.blocked_s);
  stages_[number] = Stage::taken;
  lock.unlock();
  std::optional<Copy> room = room_for(number, patience_s);
  if (room && !by_step) {
    pieces_.read(number, room->weights, room->state);
    hand_over(std::move(*room));
    room.reset();
    lock.lock();
    return {};
  }
  lock.lock();
  if (!room) stages_[number] = Stage::pending;
  return room;
}

std::optional<Snapshot::Copy> Snapshot::room_for(size_t number, double patience_s) {
  std::optional<offload::StagingRing::Lease> lease;
  if (patience_s == kPatient) {
    lease.emplace(ring_.acquire());
  } else if (auto free = ring_.acquire_for(patience_s)) {
    lease.emplace(std::move(*free));
  }
  if (!lease) return {};
  const auto weights = lease->bytes().first(pieces_.weight_bytes(number));
  const auto state = lease->bytes().subspan(weights.size(), pieces_.state_bytes(number));
  return Copy{number, std::move(*lease), weights, state};
}

void Snapshot::hand_over(Copy copy) {
  {
    std::lock_guard lock(mutex_);
    if (over_) return;
    queue_.push_back(std::move(copy));
  }
  changed_.notify_all();
}

void Snapshot::step_ended() {
  {
    std::lock_guard lock(mutex_);
    passed_ = state_.generation() > pieces_.generation();
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
      if (pieces_.staged(g.id)) drain_group(g.id);
    }
  } catch (...) {
    unreadable = std::current_exception();
  }
  Lock lock(mutex_);
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
    for (size_t i = 0; i < pieces_.size() && !over_; ++i) {
      if (pieces_[i].group != group || stages_[i] != Stage::pending) continue;
      stages_[i] = Stage::taken;
      numbers.push_back(i);
      ranges.push_back(pieces_[i].range);
    }
  }
  auto number = numbers.begin();
  state_.scan(group, ranges, pieces_.generation(), [&](TileRange, std::span<const std::byte> weights, std::span<const std::byte> state) {
    std::optional<Copy> room = room_for(*number++, kPatient);
    copy(weights, room->weights.data());
    copy(state, room->state.data());
    hand_over(std::move(*room));
  });
}

bool Snapshot::over() const {
  std::lock_guard lock(mutex_);
  return over_;
}

// The functions below run on the snapshot's own thread.
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

// Passes pieces to the save. Training uses the disk too, so after each piece the save pauses for as long as that piece took, unless
// somebody waits for it.
void Snapshot::deliver(const Visit& visit) {
  Lock lock(mutex_);
  while (left_ > 0) {
    std::optional<size_t> in_place;
    wait(
        lock, [&] { return given_up_ || !queue_.empty() || (in_place = next_in_place()); }, Clock::duration::max());
    if (given_up_ && queue_.empty()) throw Error(ErrorCode::io, "[snapshot] the save was canceled before it had all pieces");
    const auto start = Clock::now();
    if (!queue_.empty()) {
      visit_copy(lock, visit);
    } else if (!visit_in_place(lock, visit, *in_place)) {
      continue;
    }
    --left_;
    wait(
        lock, [&] { return wanted_ || draining_ || given_up_; }, Clock::now() - start);
  }
}

void Snapshot::visit_copy(Lock& lock, const Visit& visit) {
  const Copy copy = std::move(queue_.front());
  queue_.pop_front();
  const SnapshotPieces::Piece& piece = pieces_[copy.number];
  lock.unlock();
  visit(piece.group, piece.range, copy.weights, copy.state);
  lock.lock();
}

// Passes a piece to the save without the queue. Returns false if the piece must be copied first and there is no buffer for the copy. The
// queue then holds pieces that the save can take instead.
bool Snapshot::visit_in_place(Lock& lock, const Visit& visit, size_t number) {
  constexpr double kBrieflyS = 1e-3;
  const SnapshotPieces::Piece& piece = pieces_[number];
  const bool visible = pieces_.visible(piece.group);
  stages_[number] = Stage::busy;
  lock.unlock();
  std::optional<Copy> room = visible ? std::nullopt : room_for(number, kBrieflyS);
  if (room) {
    pieces_.read(number, room->weights, room->state);
    visit(piece.group, piece.range, room->weights, room->state);
  } else if (visible) {
    visit(piece.group, piece.range, pieces_.weights(number), pieces_.state(number));
  }
  lock.lock();
  const bool visited = room || visible;
  stages_[number] = visited ? Stage::taken : Stage::pending;
  outcome_.left_behind += visited && pieces_.staged(piece.group) && !pieces_.frozen(piece.group);
  changed_.notify_all();
  return visited;
}

// Returns the piece that this thread reads next. Pieces in memory and frozen ones come first, from the last to the first, because the
// optimizer updates after the backward go in the other direction. Then come the pieces that the updates left behind, in the order in
// which later updates will come to them.
std::optional<size_t> Snapshot::next_in_place() {
  for (; unwalked_ > 0; --unwalked_) {
    const u16 group = pieces_[unwalked_ - 1].group;
    if (stages_[unwalked_ - 1] == Stage::pending && (pieces_.frozen(group) || !pieces_.staged(group))) return unwalked_ - 1;
  }
  for (size_t i = 0; passed_ && i < pieces_.size(); ++i) {
    if (stages_[i] == Stage::pending) return i;
  }
  return {};
}

void Snapshot::wait(Lock& lock, const std::function<bool()>& until, Clock::duration at_most) {
  const auto start = Clock::now();
  if (at_most == Clock::duration::max()) {
    changed_.wait(lock, until);
  } else {
    changed_.wait_until(lock, start + at_most, until);
  }
  idle_s_ += seconds(Clock::now() - start);
}

}  // namespace spillway::parallel
