// Simulates a disk that fails on demand. A FaultySystem stands between an I/O engine and the kernel; a FaultyEngine is a real engine on
// top of a FaultySystem, for tests that need an IoEngine. Faults are set before or between transfers; the counters may be read at any
// time.
#pragma once
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "offload/io_engine.h"
#include "offload/system_calls.h"

namespace spillway::test {

class FaultySystem : public offload::SystemCalls {
 public:
  int uring_refusal = 0;  // errno with which the setup of io_uring fails; 0: the setup works
  // number of the first transfer that fails, counted from 0 in the order of completion; -1: none fails
  std::atomic<i64> fail_at{-1};
  std::atomic<i64> failures{1};              // number of transfers that fail, from `fail_at` on
  std::atomic<int> error_number{EIO};        // errno of a failing transfer; 0 means a count of 0, as at the end of a file
  std::atomic<i64> most_requested_bytes{0};  // most bytes that the kernel is asked for at once, so that short counts are true; 0: no limit
  // most bytes that the engine is told were read; the bytes read beyond them are overwritten; 0: no limit
  std::atomic<i64> most_reported_bytes{0};
  std::atomic<i64> delay_us{0};
  std::atomic<i64> hold_until_at_work{0};      // transfers end once this many were in flight together, or after 20 s
  std::atomic<int> flush_error{0};             // errno with which every fdatasync fails; 0: the kernel's result is passed on
  std::atomic<bool> spoil_reads{false};        // true: a bit of the data of every read is flipped
  std::atomic<bool> spoil_first_reads{false};  // true: a bit of the data is flipped in each read that is the first at its offset

  std::atomic<i64> flushes{0}, transfers{0}, at_work{0}, most_at_work{0};

  int refuse_io_uring() override { return uring_refusal; }

  i64 bytes_to_request(const offload::Transfer& transfer) override {
    const i64 now = ++at_work;
    for (i64 most = most_at_work; now > most && !most_at_work.compare_exchange_weak(most, now);) {
    }
    return most_requested_bytes > 0 ? std::min<i64>(most_requested_bytes, transfer.bytes) : transfer.bytes;
  }

  i64 completed(const offload::Transfer& transfer, i64 result) override {
    if (delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (most_at_work < hold_until_at_work && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --at_work;
    const i64 number = transfers++;
    if (fail_at >= 0 && number >= fail_at && number < fail_at + failures) return -error_number;
    if (!transfer.write && result > 0 && (spoil_reads || (spoil_first_reads && is_first(transfer)))) *transfer.buffer ^= std::byte{1};
    const i64 limit = most_reported_bytes;
    if (limit <= 0 || result <= limit) return result;
    if (!transfer.write) std::memset(transfer.buffer + limit, 0xEE, static_cast<size_t>(result - limit));
    return limit;
  }

  i64 flushed(int, i64 result) override {
    ++flushes;
    return flush_error != 0 ? -flush_error : result;
  }

 private:
  bool is_first(const offload::Transfer& transfer) {
    std::lock_guard lock(mutex_);
    return seen_.insert({transfer.descriptor, transfer.offset}).second;
  }
  std::mutex mutex_;
  std::set<std::pair<int, i64>> seen_;
};

class FaultyEngine final : public offload::IoEngine {
 public:
  explicit FaultyEngine(offload::IoEngineKind kind = offload::IoEngineKind::pread, int queue_depth = 16)
      : engine_(offload::make_io_engine(kind, queue_depth, system_).engine) {}
  std::string_view name() const override { return engine_->name(); }
  Event submit(const offload::IoRequest& request) override { return engine_->submit(request); }
  void flush(const offload::ScratchFile& file) override { engine_->flush(file); }
  FaultySystem& system() { return system_; }

 private:
  FaultySystem system_;
  std::unique_ptr<offload::IoEngine> engine_;
};

}  // namespace spillway::test
