#include "parallel/comm/movers.h"

#include <algorithm>

#include "base/error.h"
#include "base/pause.h"
#include "base/thread.h"

namespace spillway::parallel {
namespace {

// A piece of work has this many bytes. One core moves a piece in tens of microseconds, which is long compared with the
// time to take a piece from the queue, and short enough that a small message does not wait long behind it.
constexpr i64 kPieceBytes = 256 * kKiB;
// The caller itself carries out transfers up to this size: they take about as long as a thread takes to wake up.
constexpr i64 kInPlaceBytes = 64 * kKiB;
// The number of times that a thread polls for new work, about 20 microseconds in all, before it sleeps. More work often follows at once.
constexpr int kSpins = 1000;

struct Piece {
  size_t transfer;
  i64 begin, end;
};

i64 bytes_of(const std::vector<Transfer>& transfers) {
  i64 bytes = 0;
  for (const Transfer& t : transfers) bytes += t.elems * size_of(t.dtype) * std::ssize(t.from);
  return bytes;
}

std::vector<Piece> cut(const std::vector<Transfer>& transfers) {
  std::vector<Piece> pieces;
  for (size_t k = 0; k < transfers.size(); ++k) {
    const i64 elems = transfers[k].elems, step = kPieceBytes / size_of(transfers[k].dtype);
    for (i64 begin = 0; begin < elems; begin += step) pieces.push_back({k, begin, std::min(elems, begin + step)});
  }
  return pieces;
}

}  // namespace

struct Movers::Job {
  std::vector<Transfer> transfers;
  std::vector<Stores> stores;  // for each transfer, whether its results are written through the caches or past them
  std::vector<Piece> pieces;
  std::function<void()> done;
  size_t next = 0;  // the next piece to be taken; guarded by the mutex
  std::atomic<size_t> left{0};

  Job(std::vector<Transfer> all, std::function<void()> after)
      : transfers(std::move(all)), pieces(cut(transfers)), done(std::move(after)), left(pieces.size()) {
    for (const Transfer& t : transfers) stores.push_back(t.stores());
  }
  void carry(size_t piece) {
    const Piece& p = pieces[piece];
    carry_out(transfers[p.transfer], p.begin, p.end, stores[p.transfer]);
    if (--left == 0) done();
  }
};

Movers::Movers(int threads) {
  if (threads < 1) throw Error(ErrorCode::usage, "[communicator] expected at least 1 thread to move data, got " + std::to_string(threads));
  start_threads(
      threads_, threads, [this](int) { serve(); }, [this] { end(); });
}

void Movers::end() {
  {
    const Lock lock(mutex_);
    stop_ = has_work_ = true;
  }
  wake_.notify_all();
}

Movers::~Movers() {
  end();
  for (std::thread& thread : threads_) thread.join();
}

void Movers::move(std::vector<Transfer> transfers, std::function<void()> done) {
  const bool in_place = bytes_of(transfers) <= kInPlaceBytes;
  const auto job = std::make_shared<Job>(std::move(transfers), std::move(done));
  if (job->pieces.empty()) return job->done();
  if (in_place) {
    for (size_t k = 0; k < job->pieces.size(); ++k) job->carry(k);
    return;
  }
  {
    const Lock lock(mutex_);
    queue_.push_back(job);
    has_work_ = true;
  }
  wake_.notify_all();
}

// Waits until there is work. Returns false if the thread must end instead. The lock is held at the call and at the return.
bool Movers::wait_for_work(Lock& lock) {
  if (queue_.empty() && !stop_) {
    lock.unlock();
    for (int i = 0; i < kSpins && !has_work_; ++i) pause_spinning();
    lock.lock();
  }
  wake_.wait(lock, [&] { return stop_ || !queue_.empty(); });
  return !stop_;
}

void Movers::serve() {
  Lock lock(mutex_);
  while (wait_for_work(lock)) {
    const std::shared_ptr<Job> job = queue_.front();
    const size_t piece = job->next++;
    if (job->next == job->pieces.size()) queue_.pop_front();
    has_work_ = stop_ || !queue_.empty();
    lock.unlock();
    job->carry(piece);
    lock.lock();
  }
}

}  // namespace spillway::parallel
