#include "trainer/node/disk_probe.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/thread.h"
#include "device/memory_pool.h"
#include "trainer/node/disk_load.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;
using Mix = DiskLoad::Mix;

constexpr i64 kLeastFileBytes = 64 * kMiB, kMostFileBytes = 512 * kMiB;
constexpr i64 kLeastPieces = 16, kInFlight = 24;
constexpr double kMostFillSeconds = 0.5, kMostMixedSeconds = 1, kMostAloneSeconds = 0.25;

// Computing keeps threads busy with multiplications and additions as long as the object lives.
class Computing {
 public:
  explicit Computing(int threads) {
    start_threads(
        threads_, threads, [this](int) { compute(); }, [this] { stop_ = true; });
  }
  ~Computing() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

 private:
  void compute() {
    std::vector<float> values(4096, 1.0f);
    while (!stop_) {
      for (float& value : values) value = value * 0.999f + 0.001f;
      sum_.store(values.front(), std::memory_order_relaxed);  // storing the value keeps the compiler from removing the loop
    }
  }
  std::atomic<bool> stop_ = false;
  std::atomic<float> sum_ = 0;
  std::vector<std::thread> threads_;
};

fs::path folder_there(const fs::path& path) {
  std::error_code ignored;
  fs::path at = fs::absolute(path, ignored);
  while (!fs::is_directory(at, ignored) && at.has_relative_path()) at = at.parent_path();
  return at;
}

DiskRates measure(const fs::path& folder, offload::IoEngine& engine, const ProbeSize& size) {
  const i64 file_bytes = std::clamp(size.file_bytes / DiskLoad::kPieceBytes * DiskLoad::kPieceBytes, kLeastFileBytes, kMostFileBytes);
  const offload::ScratchFile file = nameless_file(folder, file_bytes);
  DiskLoad load(file, engine, MemoryPool::heap(), kInFlight);
  const i64 pieces = load.fill(kLeastPieces, kMostFillSeconds);
  const Computing beside(size.threads);
  DiskRates rates{.path = folder.string()};
  rates.mixed_bytes_per_s = load.sustained(Mix::both, pieces, 6 * pieces, kMostMixedSeconds);
  rates.read_bytes_per_s = load.sustained(Mix::read, pieces, pieces, kMostAloneSeconds);
  rates.write_bytes_per_s = load.sustained(Mix::write, pieces, pieces, kMostAloneSeconds);
  return rates;
}

}  // namespace

std::optional<DiskRates> probe_disk(const fs::path& path, offload::IoEngine& engine, const ProbeSize& size) {
  try {
    return measure(folder_there(path), engine, size);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace spillway::trainer
