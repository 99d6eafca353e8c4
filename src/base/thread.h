// The one place where threads begin. A system refuses one when the user has too many (ulimit -u), when the job's control group does
// (pids.max), or when there is no address space for its stack; that is told in words, and whoever wanted the thread is left as he was.
#pragma once
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace spillway {

/// Throws Error(io): what was refused, and where the limits are looked up.
[[noreturn]] void refuse_thread(const std::system_error& error);

/// A thread that runs body(). Error(io).
template <class Body>
std::thread start_thread(Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    refuse_thread(error);
  }
}

/// Adds `count` threads that run body(0), body(1) … When one is refused, calls `stop`, which must make those that run return, waits for all
/// of `threads` and throws Error(io).
template <class Body, class Stop>
void start_threads(std::vector<std::thread>& threads, int count, Body body, Stop stop) {
  threads.reserve(threads.size() + static_cast<size_t>(count));
  try {
    for (int t = 0; t < count; ++t) threads.push_back(start_thread([body, t] { body(t); }));
  } catch (...) {
    stop();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    throw;
  }
}

}  // namespace spillway
