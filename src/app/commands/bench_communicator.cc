#include <chrono>

#include "app/commands/bench.h"
#include "device/copy.h"
#include "device/memory_pool.h"
#include "device/stream.h"

namespace spillway::app {
namespace {

using Clock = std::chrono::steady_clock;
using parallel::Parts;

constexpr int kRuns = 3;  // equal on all ranks, since a rank with one run more would wait forever

// Exchanged holds a rank's buffer for the collectives, and memory for a copy of it.
class Exchanged {
 public:
  Exchanged(i64 bytes, parallel::Communicator& ranks)
      : ranks_(ranks), memory_(Stream::current().memory->allocate(2 * bytes, "bench: exchange buffer and a copy of it")) {
    const i64 elems = bytes / static_cast<i64>(sizeof(float));
    for (i64 r = 0; r <= ranks.size(); ++r) elems_.push_back(elems * r / ranks.size());
    for (const i64 begin : elems_) bytes_.push_back(begin * static_cast<i64>(sizeof(float)));
    auto* values = reinterpret_cast<float*>(memory_.data());
    for (i64 i = 0; i < 2 * elems; ++i) values[i] = static_cast<float>(i % 1021);
  }

  void reduce_scatter() { ranks_.reduce_scatter(whole(), part(other_half()), DType::f32, elems_).wait(); }
  void all_gather() { ranks_.all_gather(part(whole()), whole(), bytes_).wait(); }
  /// Copies so much that all ranks together read and write `bytes`. Half of these bytes are read, and each rank reads an equal share of
  /// that half.
  void copy(i64 bytes) { copy_past_caches(other_half().data(), whole().data(), bytes / ranks_.size() / 2); }

  /// These are the bytes that all ranks together read and write. A reduce-scatter reads every rank's
  /// buffer and writes one sum. An all-gather reads every part once and writes every rank's buffer.
  i64 reduce_scatter_bytes() const { return (ranks_.size() + 1) * bytes_.back(); }
  i64 all_gather_bytes() const { return ranks_.size() * bytes_.back(); }

 private:
  std::span<std::byte> whole() { return {memory_.data(), static_cast<size_t>(bytes_.back())}; }
  std::span<std::byte> other_half() { return {memory_.data() + bytes_.back(), static_cast<size_t>(bytes_.back())}; }
  std::span<std::byte> part(std::span<std::byte> all) const {
    const auto r = static_cast<size_t>(ranks_.rank());
    return all.subspan(static_cast<size_t>(bytes_[r]), static_cast<size_t>(bytes_[r + 1] - bytes_[r]));
  }

  parallel::Communicator& ranks_;
  Allocation memory_;
  Parts elems_{}, bytes_{};
};

// Returns the seconds from the arrival of the last rank until all ranks have run `body`.
double seconds_of(const std::function<void()>& body, parallel::Communicator& ranks) {
  ranks.barrier().wait();
  const auto begin = Clock::now();
  body();
  ranks.barrier().wait();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

BenchRow row(const char* name, i64 bytes, const Timing& timing, const Timing& copy) {
  const auto moved = static_cast<double>(bytes);
  return {.name = name,
          .path = "",
          .value = moved / timing.seconds,
          .unit = "bytes/s",
          .ceiling = moved / copy.seconds,
          .threads = 0,
          .spread = timing.spread};
}

}  // namespace

std::vector<BenchRow> bench_communicator(const BenchSize& size, parallel::Communicator& ranks) {
  ThreadPool one(1);
  const Stream stream{Device::cpu(), &one, &MemoryPool::heap()};
  const StreamScope scope(stream);
  Exchanged all(size.exchange_bytes, ranks);
  const std::vector<std::function<void()>> loops = {[&] { all.reduce_scatter(); }, [&] { all.copy(all.reduce_scatter_bytes()); },
                                                    [&] { all.all_gather(); }, [&] { all.copy(all.all_gather_bytes()); }};
  std::vector<std::vector<double>> seconds(loops.size());
  for (const auto& loop : loops) loop();
  for (int round = 0; round < size.rounds; ++round) {
    for (size_t i = 0; i < loops.size(); ++i) {
      double sum = 0;
      for (int run = 0; run < kRuns; ++run) sum += seconds_of(loops[i], ranks);
      seconds[i].push_back(sum / kRuns);
    }
  }
  std::vector<Timing> s;
  for (const auto& one_loop : seconds) s.push_back(timing_of(one_loop));
  return {row("communicator.reduce-scatter", all.reduce_scatter_bytes(), s[0], s[1]),
          row("communicator.all-gather", all.all_gather_bytes(), s[2], s[3])};
}

}  // namespace spillway::app
