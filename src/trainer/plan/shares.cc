#include "trainer/plan/shares.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "offload/nvme_store.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

constexpr u32 kMostWeight = 64;
constexpr double kTolerance = 0.1;  // two measurements of one drive, made one after the other, differ by a smaller share than this

// Returns the paths' weights for the case that the fastest path has the weight `most`, and the largest relative error of a weight.
std::pair<std::vector<u32>, double> scaled(const std::vector<double>& rates, u32 most) {
  const double fastest = *std::ranges::max_element(rates);
  std::vector<u32> weights;
  double worst = 0;
  for (const double rate : rates) {
    const double wanted = rate / fastest * most;
    weights.push_back(std::max(1u, static_cast<u32>(std::lround(wanted))));
    worst = std::max(worst, std::abs(weights.back() - wanted) / wanted);
  }
  return {weights, worst};
}

std::string listed(const std::vector<double>& rates) {
  std::vector<std::string> texts;
  for (const double rate : rates) texts.push_back(fmt::format("{:.2f}", rate / 1e9));
  return fmt::format("{} GB/s", fmt::join(texts, ", "));
}

Shares equal(size_t paths, std::string why) { return {std::vector<u32>(paths, 1), std::move(why)}; }

}  // namespace

std::string Shares::text() const { return weights.size() < 2 ? "" : fmt::format("shares {} ({})", fmt::join(weights, ":"), why); }

std::vector<u32> weights_of(const std::vector<double>& bytes_per_s) {
  for (u32 most = 1; most < kMostWeight; ++most) {
    const auto [weights, worst] = scaled(bytes_per_s, most);
    if (worst <= kTolerance) return weights;
  }
  return scaled(bytes_per_s, kMostWeight).first;
}

bool on_one_filesystem(const std::vector<ScratchPath>& paths) {
  std::vector<dev_t> devices;
  for (const ScratchPath& path : paths) {
    const fs::path whole = fs::absolute(path.path).lexically_normal();
    struct stat info {};
    if (::stat(whole.c_str(), &info) != 0 && ::stat(whole.parent_path().c_str(), &info) != 0) return false;
    devices.push_back(info.st_dev);
  }
  return std::ranges::adjacent_find(devices, std::ranges::not_equal_to()) == devices.end();
}

Shares known_shares(const std::vector<ScratchPath>& paths, const std::string& run_id, const Calibration& calibration) {
  if (paths.size() < 2) return equal(paths.size(), "");
  const std::vector<u32> kept = offload::kept_weights(fs::path(paths[0].path) / ("spillway-" + run_id));
  if (kept.size() == paths.size()) return {kept, "as the files are striped"};
  std::vector<DiskRates> disks;
  for (const ScratchPath& path : paths) {
    const DiskRates disk = calibration.disk(path.path);
    if (!disk.path.empty()) disks.push_back(disk);
  }
  if (disks.size() == paths.size()) return shares_by(disks, "bench measured");
  if (on_one_filesystem(paths)) return equal(paths.size(), "one filesystem");
  Shares shares = equal(paths.size(), "not measured");
  shares.to_measure = true;
  return shares;
}

Shares shares_by(const std::vector<DiskRates>& disks, const std::string& who) {
  std::vector<double> rates;
  for (const DiskRates& disk : disks) rates.push_back(disk.mixed_bytes_per_s);
  return {weights_of(rates), who + " " + listed(rates)};
}

i64 striped_room(const std::vector<u32>& weights, const std::vector<i64>& room_bytes) {
  const i64 sum = std::accumulate(weights.begin(), weights.end(), i64{0});
  i64 room = weights.empty() ? 0 : std::numeric_limits<i64>::max();
  for (size_t p = 0; p < weights.size(); ++p) room = std::min(room, room_bytes[p] / weights[p] * sum);
  return room;
}

double striped_rate(const std::vector<u32>& weights, const std::vector<DiskRates>& disks, double DiskRates::*rate) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  double all = std::numeric_limits<double>::max();
  for (size_t p = 0; p < weights.size(); ++p) all = std::min(all, disks[p].*rate * sum / weights[p]);
  return all;
}

double drives_worth(const std::vector<u32>& weights) {
  if (weights.empty()) return 1;
  return std::accumulate(weights.begin(), weights.end(), 0.0) / *std::ranges::max_element(weights);
}

}  // namespace spillway::trainer
