#include "times.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

namespace emulated_cuda {
namespace {

std::mutex rates_mutex;
std::optional<Rates> rates;

std::optional<Rates> rates_now() {
  const std::lock_guard lock(rates_mutex);
  return rates;
}

Nanoseconds of_seconds(double s) { return static_cast<Nanoseconds>(s * 1e9); }

}  // namespace

void use_rates(const Rates& now) {
  const std::lock_guard lock(rates_mutex);
  rates = now;
}
void forget_rates() {
  const std::lock_guard lock(rates_mutex);
  rates.reset();
}
bool has_rates() { return rates_now().has_value(); }

Cost cost_of_copy(Engine engine, size_t bytes) {
  const auto now = rates_now();
  return now ? Cost{engine, of_seconds(static_cast<double>(bytes) / now->copy_bytes_per_s)} : Cost{};
}
Cost cost_of_kernel(size_t threads) {
  const auto now = rates_now();
  return now ? Cost{Engine::kernels, of_seconds(static_cast<double>(threads) / now->threads_per_s)} : Cost{};
}
Cost cost_of_product(size_t m, size_t n, size_t k) {
  const auto now = rates_now();
  return now ? Cost{Engine::kernels,
                    of_seconds(2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / now->flops)}
             : Cost{};
}

Nanoseconds& thread_clock() {
  static thread_local Nanoseconds clock = 0;
  return clock;
}

Nanoseconds Busy::take(Nanoseconds from, Nanoseconds time) {
  const std::lock_guard lock(mutex_);
  auto piece = std::ranges::upper_bound(pieces_, from, {}, &Piece::end);
  for (; piece != pieces_.end() && piece->begin < from + time; ++piece) from = std::max(from, piece->end);
  piece = pieces_.insert(piece, {from, from + time});
  if (piece != pieces_.begin() && std::prev(piece)->end == piece->begin) {
    std::prev(piece)->end = piece->end;
    pieces_.erase(piece);
  }
  return from;
}

Busy& engine_of(int gpu, Engine engine) {
  static std::mutex mutex;
  static std::map<int, std::array<Busy, kEngines>> all;
  const std::lock_guard lock(mutex);
  return all[gpu][static_cast<size_t>(engine)];
}

}  // namespace emulated_cuda
