// Simulates when copies and kernels would run on a real GPU. cudaEventElapsedTime() reports the simulated time, since the
// time that the emulation takes says nothing about a GPU. A piece of work begins when its stream, its hardware connection
// and its engine are free and the CPU has queued it. Each CPU thread has a clock, which waiting moves forward.
#pragma once
#include <cstdint>
#include <mutex>
#include <vector>

#include "faults.h"

namespace emulated_cuda {

using Nanoseconds = std::int64_t;

enum class Engine { none, kernels, to_gpu, to_host, between_gpus };
constexpr int kEngines = 5;

struct Cost {
  Engine engine = Engine::none;
  Nanoseconds time = 0;
};

/// Returns the cost of a piece of work at the current rates. Work takes no time if no rates are set.
Cost cost_of_copy(Engine engine, size_t bytes);
Cost cost_of_kernel(size_t threads);
Cost cost_of_product(size_t m, size_t n, size_t k);
bool has_rates();

/// Returns the simulated clock of the calling thread.
Nanoseconds& thread_clock();

/// Tracks when one engine of a GPU is busy. An engine does one piece of work at a time.
class Busy {
 public:
  /// Reserves the engine's first free gap of length `time` at or after `from`, and returns where the gap begins.
  Nanoseconds take(Nanoseconds from, Nanoseconds time);

 private:
  struct Piece {
    Nanoseconds begin, end;
  };
  std::mutex mutex_;
  std::vector<Piece> pieces_;  // the times when the engine is busy, ordered by time and without overlaps
};
Busy& engine_of(int gpu, Engine engine);

}  // namespace emulated_cuda
