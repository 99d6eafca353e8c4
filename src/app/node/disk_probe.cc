#include "app/node/disk_probe.h"

#include "app/node/disk_load.h"
#include "base/error.h"
#include "device/memory_pool.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;
using Mix = DiskLoad::Mix;

constexpr i64 kPieces = 64, kLeastPieces = 16, kInFlight = 16, kRounds = 2;
constexpr double kMostFillSeconds = 0.15;

fs::path folder_there(const fs::path& path) {
  std::error_code ignored;
  fs::path at = fs::absolute(path, ignored);
  while (!fs::is_directory(at, ignored) && at.has_relative_path()) at = at.parent_path();
  return at;
}

DiskRates measure(const fs::path& folder, offload::IoEngine& engine) {
  const offload::ScratchFile file = nameless_file(folder, kPieces * DiskLoad::kPieceBytes);
  DiskLoad load(file, engine, MemoryPool::heap(), kInFlight);
  const i64 pieces = load.fill(kLeastPieces, kMostFillSeconds);
  DiskRates rates{.path = folder.string(), .read_bytes_per_s = 0, .write_bytes_per_s = 0, .mixed_bytes_per_s = 0};
  for (i64 round = 0; round < kRounds; ++round) {
    const auto best = [&](double& rate, Mix mix) {
      rate = std::max(rate, static_cast<double>(pieces * DiskLoad::kPieceBytes) / load.move(mix, 0, pieces, pieces));
    };
    best(rates.read_bytes_per_s, Mix::read);
    best(rates.write_bytes_per_s, Mix::write);
    best(rates.mixed_bytes_per_s, Mix::both);
  }
  return rates;
}

}  // namespace

std::optional<DiskRates> probe_disk(const fs::path& path, offload::IoEngine& engine) {
  try {
    return measure(folder_there(path), engine);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace spillway::app
