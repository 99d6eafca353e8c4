#include "parallel/exchange/nccl_watch_cuda.h"

#ifdef SPILLWAY_HAS_NCCL
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/thread.h"
#include "base/units.h"
#include "device/cuda_handle.h"

namespace spillway::parallel {
namespace {

using WatchClock = std::chrono::steady_clock;

// The pause between two checks of the exchanges. When settle() is called, the next check is made at once.
constexpr auto kBetweenLooks = std::chrono::microseconds(500);

bool has_happened(const GpuEvent& event) {
  const cudaError_t status = cudaEventQuery(event.handle());
  if (status == cudaErrorNotReady) return false;
  cuda_check(status, "cudaEventQuery");
  return true;
}

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

NcclWatch::NcclWatch(Device gpu, std::function<void(const std::string&)> failed)
    : gpu_(gpu), failed_(std::move(failed)), thread_(start_thread([this] { run(); })) {}

NcclWatch::~NcclWatch() { static_cast<void>(stop()); }

size_t NcclWatch::add(Line line) {
  const std::lock_guard lock(mutex_);
  lines_.push_back({std::move(line), {}});
  return lines_.size() - 1;
}

void NcclWatch::queue(size_t line, const GpuQueue& queue, const std::string& what, const std::function<void()>& work) {
  use_device(gpu_);
  std::unique_ptr<Exchange> exchange = take_exchange();
  exchange->what = what;
  try {
    exchange->begin.record(queue);
    work();
    exchange->end.record(queue);
  } catch (...) {  // also catches errors outside NCCL, because otherwise work on a queue would wait for other ranks forever
    fail(std::current_exception());
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    lines_[line].queued.push_back(std::move(exchange));
  }
  changed_.notify_all();
}

void NcclWatch::settle() {
  std::unique_lock lock(mutex_);
  ++settling_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return error_ || all_done(); });
  --settling_;
  if (error_) std::rethrow_exception(error_);
}

bool NcclWatch::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  return !error_ && all_done();
}

void NcclWatch::run() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (error_ || all_done()) {
      changed_.wait(lock, [&] { return ends_ || (!error_ && !all_done()); });
      continue;
    }
    lock.unlock();
    const bool moved = look();
    lock.lock();
    if (!moved && settling_ == 0) changed_.wait_for(lock, kBetweenLooks);
  }
}

bool NcclWatch::look() {
  bool moved = false;
  try {
    use_device(gpu_);
    for (Watched& watched : lines_) moved |= look_at(watched);
  } catch (...) {
    fail(std::current_exception());
  }
  return moved;
}

// Checks the first exchange of a line (one communicator's exchanges). Asks the other ranks first, because a
// question to the driver may have to wait for work that never ends. Returns true if something has changed.
bool NcclWatch::look_at(Watched& watched) {
  Exchange* exchange = first_of(watched);
  if (!exchange) return false;
  if (!exchange->begun) {
    if (!has_happened(exchange->begin)) return false;
    exchange->begun = true;
    exchange->needed = watched.line.need();
  }
  require_peers(watched, *exchange);
  watched.line.nccl->check_work(exchange->what);
  if (!has_happened(exchange->end)) return false;
  watched.line.done();
  {
    const std::lock_guard lock(mutex_);
    spare_.push_back(std::move(watched.queued.front()));
    watched.queued.pop_front();
  }
  changed_.notify_all();
  return true;
}

// Checks whether other ranks have done their part of this exchange. The word of one rank
// does not prove that all have, so the rest of the exchange has a time-out.
void NcclWatch::require_peers(const Watched& watched, Exchange& exchange) const {
  if (!exchange.needed.ready()) return;
  exchange.needed.wait();
  const auto now = WatchClock::now();
  if (exchange.others_done == WatchClock::time_point()) exchange.others_done = now;
  const double waited_s = std::chrono::duration<double>(now - exchange.others_done).count();
  if (waited_s <= watched.line.timeout_s) return;
  throw Error(
      ErrorCode::peer,
      fmt::format("[nccl] {}: rank {} waited {} after another rank had finished this exchange, but not all of the {} ranks finished it",
                  exchange.what, watched.line.nccl->rank(), format_duration(waited_s), watched.line.nccl->ranks()));
}

std::unique_ptr<NcclWatch::Exchange> NcclWatch::take_exchange() {
  {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    if (!spare_.empty()) {
      std::unique_ptr<Exchange> one = std::move(spare_.back());
      spare_.pop_back();
      one->begun = false;
      one->others_done = {};
      return one;
    }
  }
  return std::make_unique<Exchange>(gpu_);
}

NcclWatch::Exchange* NcclWatch::first_of(const Watched& watched) {
  const std::lock_guard lock(mutex_);
  return watched.queued.empty() ? nullptr : watched.queued.front().get();
}

bool NcclWatch::all_done() const {
  return std::ranges::all_of(lines_, [](const Watched& watched) { return watched.queued.empty(); });
}

void NcclWatch::fail(const std::exception_ptr& error) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = error;
  }
  const std::string why = message_of(error);
  failed_(why);
  for (const Watched& watched : lines_) watched.line.nccl->give_up(why);
  changed_.notify_all();
}

}  // namespace spillway::parallel
#endif
