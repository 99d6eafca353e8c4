// Logs all I/O: every write at its submission (with its bytes) and at its completion, every flush, and the test's own marks.
// tests/support/crash_images.h derives from the log what a crash at any instant may leave. Thread-safe; read the log when no I/O is in
// flight.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "offload/io_engine.h"
#include "offload/scratch_file.h"

namespace spillway::test {

struct IoLog {
  struct Write {
    std::string file;
    i64 offset = 0;
    std::vector<std::byte> bytes;
  };
  enum class Kind { submitted, completed, flushed, mark };
  struct Entry {
    Kind kind;
    size_t write = 0;  // an index into `writes`, in entries of kinds submitted and completed
    std::string file;  // path of the file, in entries of kind flushed
    i64 mark = 0;
  };
  std::map<std::string, i64> file_bytes;
  std::vector<Write> writes;
  std::vector<Entry> entries;
};

class RecordingEngine final : public offload::IoEngine {
 public:
  RecordingEngine(offload::IoEngine& real, u32 seed) : real_(real), random_(seed) {}
  ~RecordingEngine() override {
    if (!behind_.joinable()) return;
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
    }
    work_.notify_one();
    behind_.join();
  }
  std::string_view name() const override { return "recording"; }

  /// Makes a thread complete writes from now on, in random order and so late that several are in flight together.
  void linger() {
    holding_ = true;
    behind_ = std::thread([this] { complete_behind(); });
  }

  /// Keeps writes in flight from now on until release(), which completes them in random order.
  void hold() { holding_ = true; }
  void release() {
    holding_ = false;
    std::vector<Held> held = std::exchange(held_, {});
    std::shuffle(held.begin(), held.end(), random_);
    for (Held& h : held) complete(h);
  }
  void mark(i64 number) { add({IoLog::Kind::mark, 0, {}, number}); }
  const IoLog& log() const { return log_; }

  Event submit(const offload::IoRequest& request) override {
    if (!request.write || request.bytes == 0) return real_.submit(request);
    Held held{request, note(request), Event()};
    Event event = held.event;
    std::unique_lock lock(mutex_);
    if (holding_) {
      held_.push_back(std::move(held));
      work_.notify_one();
      return event;
    }
    lock.unlock();
    complete(held);
    return event;
  }

  void flush(const offload::ScratchFile& file) override {
    real_.flush(file);
    add({IoLog::Kind::flushed, 0, file.path().string(), 0});
  }

 private:
  struct Held {
    offload::IoRequest request;
    size_t write;
    Event event;
  };

  size_t note(const offload::IoRequest& request) {
    const std::string file = request.file->path().string();
    std::lock_guard lock(mutex_);
    log_.file_bytes[file] = request.file->bytes();
    log_.writes.push_back({file, request.offset, {request.buffer, request.buffer + request.bytes}});
    log_.entries.push_back({IoLog::Kind::submitted, log_.writes.size() - 1, {}, 0});
    return log_.writes.size() - 1;
  }
  void add(IoLog::Entry entry) {
    std::lock_guard lock(mutex_);
    log_.entries.push_back(std::move(entry));
  }
  void complete_behind() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [&] { return ending_ || !held_.empty(); });
      if (held_.empty()) return;
      const size_t before = held_.size();
      work_.wait_for(lock, std::chrono::microseconds(300), [&] { return held_.size() > before + 2; });
      std::swap(held_[random_() % held_.size()], held_.back());
      Held one = std::move(held_.back());
      held_.pop_back();
      lock.unlock();
      complete(one);
      lock.lock();
    }
  }
  void complete(Held& held) {
    try {
      real_.submit(held.request).wait();
    } catch (...) {
      return held.event.fail(std::current_exception());
    }
    add({IoLog::Kind::completed, held.write, {}, 0});
    held.event.set();
  }

  offload::IoEngine& real_;
  std::mutex mutex_;
  std::mt19937 random_;
  std::atomic<bool> holding_{false};
  std::vector<Held> held_;
  std::condition_variable work_;
  bool ending_ = false;
  std::thread behind_;
  IoLog log_;
};

}  // namespace spillway::test
