// A sign of life from work that may be long: after five seconds, and every five from then on, a progress line says what it is and for how
// long it has gone on. Its own thread; the work need not know of it.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "app/node/console.h"

namespace spillway::app {

class Working {
 public:
  /// `what`: "loading the weights". Until it goes.
  Working(Console& console, std::string what, std::chrono::milliseconds pause = std::chrono::seconds(5));
  /// It is asked each time, on the own thread: "copying, 3 GiB of 40 GiB".
  Working(Console& console, std::function<std::string()> what, std::chrono::milliseconds pause = std::chrono::seconds(5));
  ~Working();
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;

 private:
  void run();

  Console& console_;
  const std::function<std::string()> what_;
  const std::chrono::milliseconds pause_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace spillway::app
