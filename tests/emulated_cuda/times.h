// When copies and kernels would run, in a time of their own: cudaEventElapsedTime() in place of what the emulation takes, which says
// nothing of a GPU. A piece of work begins when its stream, its hardware queue and its engine have come to it and the CPU had queued it;
// the CPU's threads have a clock each, which waiting sets forward.
#pragma once
#include <cstdint>
#include <mutex>
#include <vector>

#include "cuda_runtime_api.h"

namespace emulated_cuda {

using Nanoseconds = std::int64_t;

enum class Engine { none, kernels, to_gpu, to_host, between_gpus };
constexpr int kEngines = 5;

struct Cost {
  Engine engine = Engine::none;
  Nanoseconds time = 0;
};

/// At the rates in use; of no time where none are.
Cost cost_of_copy(Engine engine, size_t bytes);
Cost cost_of_kernel(size_t threads);
Cost cost_of_product(size_t m, size_t n, size_t k);
bool has_rates();

/// Of the calling thread.
Nanoseconds& thread_clock();

/// One of a GPU's: a piece of work at a time.
class Busy {
 public:
  /// The first gap at or after `from` that is long enough; returns where it begins.
  Nanoseconds take(Nanoseconds from, Nanoseconds time);

 private:
  struct Piece {
    Nanoseconds begin, end;
  };
  std::mutex mutex_;
  std::vector<Piece> pieces_;  // in order, apart
};
Busy& engine_of(int gpu, Engine engine);

}  // namespace emulated_cuda
