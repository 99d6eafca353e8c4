// Declares the only functions that create threads. The system refuses a thread when the user has too many
// (ulimit -u), when the job's control group has too many (pids.max), or when there is no address space
// for its stack. These functions report a refusal as an Error and leave the caller's state unchanged.
#pragma once
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace spillway {

/// Throws an Error(io) that says that the system refused a thread and where to look up the limits.
[[noreturn]] void refuse_thread(const std::system_error& error);

/// Starts a thread that runs body(). Throws Error(io) if the system refuses it.
template <class Body>
std::thread start_thread(Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    refuse_thread(error);
  }
}

/// Appends to `threads` `count` new threads that run body(0), body(1), … If the system refuses a thread, the function calls
/// `stop`, which must make the running threads return. It then joins all of `threads`, clears the list and throws Error(io).
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
