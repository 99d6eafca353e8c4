// Working shows a sign of life during work that may take long. After five seconds, and then every five seconds, a progress line says
// what the work is and how long it has taken so far. A separate thread writes the line, so the code that does the work needs no changes.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "trainer/node/messages.h"

namespace spillway::trainer {

class Working {
 public:
  /// Shows progress lines until this object is destroyed. `what` describes the work, for instance "loading the weights".
  Working(Messages& messages, std::string what, std::chrono::milliseconds pause = std::chrono::seconds(5));
  /// Shows progress lines until this object is destroyed, and calls `what` for the text of every
  /// line, on the separate thread. An example of such a text is "copying, 3 GiB of 40 GiB".
  Working(Messages& messages, std::function<std::string()> what, std::chrono::milliseconds pause = std::chrono::seconds(5));
  ~Working();
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;

 private:
  void run();

  Messages& messages_;
  const std::function<std::string()> what_;
  const std::chrono::milliseconds pause_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace spillway::trainer
