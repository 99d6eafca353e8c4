#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "app/commands/bench.h"
#include "base/error.h"
#include "base/units.h"
#include "device/stream.h"
#include "offload/scratch_path.h"
#include "trainer/node/disk_load.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr i64 kPieceBytes = DiskLoad::kPieceBytes;
// kInFlight is twice the queue depth, so that the queue never runs empty while the next request is submitted.
constexpr i64 kInFlight = 2 * offload::kQueueDepth;
constexpr i64 kLeastFileBytes = 16 * kMiB, kLeastRoundBytes = 64 * kMiB;

i64 file_bytes(const BenchSize& size, const ScratchPath& path, i64 free_bytes) {
  const i64 bytes = std::min({size.disk_bytes, free_bytes / 4, path.bytes.value_or(size.disk_bytes)}) / kPieceBytes * kPieceBytes;
  if (bytes >= kLeastFileBytes) return bytes;
  throw Error(ErrorCode::refused,
              fmt::format("[bench] expected room for a file of {} in {}, which may take a quarter of the free space, got {} "
                          "of free space: free some space, or give another --nvme",
                          format_bytes(kLeastFileBytes), path.path, format_bytes(free_bytes)));
}

}  // namespace

std::vector<BenchRow> bench_disk(const BenchSize& size, const ScratchPath& path, offload::IoEngine& engine) {
  const offload::ScratchInfo scratch = offload::prepare_scratch(path.path, true);
  const offload::ScratchFile file = nameless_file(path.path, file_bytes(size, path, scratch.free_bytes));
  DiskLoad load(file, engine, *Stream::current().memory, kInFlight);
  const auto begin = Clock::now();
  const i64 pieces = load.fill(kLeastFileBytes / kPieceBytes, size.disk_fill_s);
  const double fill_s = std::chrono::duration<double>(Clock::now() - begin).count();
  const double in_a_round = static_cast<double>(pieces) / fill_s * 2 * size.round_s;
  const i64 count = std::clamp<i64>(static_cast<i64>(in_a_round), std::min(pieces, kLeastRoundBytes / kPieceBytes), pieces);
  constexpr std::pair<const char*, DiskLoad::Mix> kMixes[] = {
      {"disk.read", DiskLoad::Mix::read}, {"disk.write", DiskLoad::Mix::write}, {"disk.mixed", DiskLoad::Mix::both}};
  std::vector<std::vector<double>> rates(std::size(kMixes));
  for (i64 round = 0; round < size.rounds; ++round) {
    for (size_t i = 0; i < rates.size(); ++i)
      rates[i].push_back(static_cast<double>(count * kPieceBytes) / load.move(kMixes[i].second, round * count, count, pieces));
  }
  std::vector<BenchRow> rows;
  for (size_t i = 0; i < rates.size(); ++i) {
    std::ranges::sort(rates[i]);
    rows.push_back({.name = kMixes[i].first,
                    .path = fs::canonical(path.path).string(),
                    .value = rates[i][rates[i].size() / 2],
                    .unit = "bytes/s",
                    .ceiling = {},
                    .threads = Stream::current().thread_count(),
                    .spread = rates[i].back() / rates[i][rates[i].size() / 2] - 1});
  }
  return rows;
}

}  // namespace spillway::app
