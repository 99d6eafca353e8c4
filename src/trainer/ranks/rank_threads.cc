#include "trainer/ranks/rank_threads.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>
#include <vector>

#include "base/thread.h"
#include "parallel/comm/communicator_local.h"
#include "trainer/node/failure.h"

namespace spillway::trainer {
namespace {

class Group {
 public:
  Group(const RankThreads& given, Messages& messages) : given_(given), messages_(messages), running_(static_cast<size_t>(given.ranks)) {
    std::iota(running_.begin(), running_.end(), 0);
  }

  int run(const RankBody& body) {
    std::vector<std::unique_ptr<parallel::Communicator>> ends(1);
    if (given_.ranks > 1) ends = parallel::make_local_communicators(given_.ranks, {.timeout_s = given_.timeout_s});
    std::vector<std::thread> threads;
    for (int r = 0; r < given_.ranks; ++r) {
      try {
        threads.push_back(
            start_thread([&body, this, r, end = std::move(ends[static_cast<size_t>(r)])]() mutable { be(r, std::move(end), body); }));
      } catch (const Error& error) {
        ended(r, 0, std::make_exception_ptr(Error(ErrorCode::io, too_many(r, error.what()))));
        for (int never = r + 1; never < given_.ranks; ++never) ended(never, 0, nullptr);
        break;
      }
    }
    ends.clear();  // closes the communicators of ranks that were never started, so that no rank waits for them
    wait_for_all();
    for (std::thread& thread : threads) thread.join();
    return verdict();
  }

 private:
  void be(int rank, std::unique_ptr<parallel::Communicator> end, const RankBody& body) {
    try {
      ended(rank, body(rank, std::move(end)), nullptr);
    } catch (...) {
      ended(rank, 0, std::current_exception());
    }
  }

  void ended(int rank, int status, const std::exception_ptr& failure) {
    const std::lock_guard lock(mutex_);
    std::erase(running_, rank);
    status_ = std::max(status_, status);
    if (failure) failures_.push_back(failure);
    changed_.notify_all();
  }

  void wait_for_all() {
    std::unique_lock lock(mutex_);
    const auto all_ended = [&] { return running_.empty(); };
    changed_.wait(lock, [&] { return all_ended() || !failures_.empty(); });
    if (changed_.wait_for(lock, std::chrono::duration<double>(given_.grace_s), all_ended)) return;
    const Failure failure = failure_of(first_failure());
    messages_.warn(fmt::format("{}; rank{} {} did not end within {} s after that{}", failure.text, running_.size() > 1 ? "s" : "",
                               fmt::join(running_, ", "), given_.grace_s, given_.leave ? "" : ", so the program waits"));
    if (given_.leave) given_.leave(static_cast<int>(failure.code));
    changed_.wait(lock, all_ended);
  }

  // Returns the exception of the first rank that failed on its own, not because another rank had ended.
  std::exception_ptr first_failure() const {
    const auto by_itself = [](const std::exception_ptr& failure) { return failure_of(failure).code != ErrorCode::peer; };
    const auto first = std::ranges::find_if(failures_, by_itself);
    return first == failures_.end() ? failures_.front() : *first;
  }

  int verdict() const {
    if (!failures_.empty()) std::rethrow_exception(first_failure());
    return status_;
  }

  std::string too_many(int rank, const char* why) const {
    return fmt::format(
        "[ranks] expected to start {} threads, got \"{}\" for thread number {}: raise the limit of processes (ulimit -u), or start fewer "
        "ranks",
        given_.ranks, why, rank + 1);
  }

  const RankThreads& given_;
  Messages& messages_;
  std::mutex mutex_;  // protects all members declared after it
  std::condition_variable changed_;
  std::vector<int> running_;
  std::vector<std::exception_ptr> failures_;  // the exceptions of the ranks, in the order in which they happened
  int status_ = 0;
};

}  // namespace

int run_rank_threads(const RankThreads& threads, Messages& messages, const RankBody& body) { return Group(threads, messages).run(body); }

}  // namespace spillway::trainer
