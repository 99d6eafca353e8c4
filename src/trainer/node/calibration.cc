#include "trainer/node/calibration.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "data/files/file.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr std::uintmax_t kMostCalibrationBytes = kMiB;

// Known describes one value that the calibration file may hold: its name, unit and plausible limits. A value outside its limits cannot be a
// measurement.
struct Known {
  const char* name;
  const char* unit;
  double low, high;
  double Calibration::*field;     // member for a value of the node, or null
  double DiskRates::*disk_field;  // member for a value of a disk path, or null
  bool of_ranks = false;
};
constexpr double kSlowest = 1e5, kFastest = 1e15;
constexpr Known kKnown[] = {
    {"memory.axpy", "bytes/s", kSlowest, kFastest, &Calibration::memory_bytes_per_s, nullptr},
    {"memory.copy", "bytes/s", kSlowest, kFastest, &Calibration::copy_bytes_per_s, nullptr},
    {"matmul.f32", "FLOP/s", kSlowest, 1e18, &Calibration::matmul_flops_f32, nullptr},
    {"matmul.bf16", "FLOP/s", kSlowest, 1e18, &Calibration::matmul_flops_bf16, nullptr},
    {"cpu-adam.f32", "ns/parameter", 1e-6, 1e6, &Calibration::adam_ns_per_parameter, nullptr},
    {"communicator.reduce-scatter", "bytes/s", kSlowest, kFastest, &Calibration::reduce_scatter_bytes_per_s, nullptr, true},
    {"communicator.all-gather", "bytes/s", kSlowest, kFastest, &Calibration::all_gather_bytes_per_s, nullptr, true},
    {"gpu.matmul-f32", "FLOP/s", kSlowest, 1e18, &Calibration::gpu_matmul_flops_f32, nullptr},
    {"gpu.matmul-bf16", "FLOP/s", kSlowest, 1e18, &Calibration::gpu_matmul_flops_bf16, nullptr},
    {"gpu.copy", "bytes/s", kSlowest, kFastest, &Calibration::gpu_copy_bytes_per_s, nullptr},
    {"link.to-gpu", "bytes/s", kSlowest, kFastest, &Calibration::to_gpu_bytes_per_s, nullptr},
    {"link.from-gpu", "bytes/s", kSlowest, kFastest, &Calibration::from_gpu_bytes_per_s, nullptr},
    {"disk.read", "bytes/s", kSlowest, kFastest, nullptr, &DiskRates::read_bytes_per_s},
    {"disk.write", "bytes/s", kSlowest, kFastest, nullptr, &DiskRates::write_bytes_per_s},
    {"disk.mixed", "bytes/s", kSlowest, kFastest, nullptr, &DiskRates::mixed_bytes_per_s},
};
constexpr int kMostThreads = 1 << 16;

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  std::string text = name[0] ? name : "localhost";
  std::ranges::replace_if(
      text, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.'; }, '_');
  return text;
}

std::string text_at(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : "";
}

double number_at(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_number() ? found->get<double>() : std::nan("");
}

// Returns the rows of the calibration file `file`. Returns null and sets `reason` if the file is not valid. A missing file gives an empty
// list.
Json read_rows(const fs::path& file, std::string& reason) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(file, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) return Json::array();
  const auto text = error || bytes > kMostCalibrationBytes ? std::nullopt : read_whole(file);
  const Json parsed = text ? parse_ordered_json(*text) : Json();
  if (!text) {
    reason = "the file cannot be read, or is far too large";
  } else if (!parsed.is_object() || !parsed.contains("rows") || !parsed["rows"].is_array()) {
    reason = "the file is not a table of measurements";
  } else if (number_at(parsed, "format") != kFormat) {
    reason = "the file has the format of another version";
  } else {
    return parsed["rows"];
  }
  return {};
}

const Known* known(const std::string& name) {
  const auto* found = std::ranges::find_if(kKnown, [&](const Known& k) { return name == k.name; });
  return found == std::end(kKnown) ? nullptr : found;
}

// Returns what is wrong with a row of the calibration file, or an empty string if the row is valid. A row whose name this version does not
// know counts as valid.
std::string fault_of(const Json& row) {
  if (!row.is_object()) return "a row is not a JSON object";
  const Known* k = known(text_at(row, "name"));
  if (!k) return "";
  const double value = number_at(row, "value");
  if (!(value >= k->low && value <= k->high))
    return fmt::format("{} has the value {}, which is out of range", k->name, row.contains("value") ? row["value"].dump() : "none");
  if (text_at(row, "unit") != k->unit) return fmt::format("{} has the unit \"{}\", which is not expected", k->name, text_at(row, "unit"));
  if (k->disk_field && !fs::path(text_at(row, "path")).is_absolute()) return fmt::format("{} has no absolute path", k->name);
  return "";
}

DiskRates& disk_of(Calibration& c, const std::string& path) {
  for (DiskRates& disk : c.disks) {
    if (disk.path == path) return disk;
  }
  c.disks.push_back({.path = path});
  return c.disks.back();
}

void take(Calibration& c, const Json& row) {
  const Known* k = known(text_at(row, "name"));
  if (!k) return;
  c.measured = true;
  if (k->disk_field) {
    disk_of(c, text_at(row, "path")).*k->disk_field = number_at(row, "value");
  } else {
    c.*k->field = number_at(row, "value");
    c.ranks_measured |= k->of_ranks;
    const double threads = number_at(row, "threads");
    if (threads >= 1 && threads <= kMostThreads) c.threads = static_cast<int>(threads);
  }
}

Json to_json(const BenchRow& row) {
  Json json = {{"name", row.name}};
  if (!row.path.empty()) json["path"] = row.path;
  json["value"] = row.value;
  json["unit"] = row.unit;
  json["ceiling"] = row.ceiling ? Json(*row.ceiling) : Json();
  json["share"] = row.share() ? Json(*row.share()) : Json();
  json["threads"] = row.threads;
  json["spread"] = row.spread;
  json["busy"] = row.busy.has_value();
  return json;
}

std::string whole_text(const Json& rows) {
  const Json all = {{"format", kFormat}, {"host", host_name()}, {"rows", rows}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Returns whether the new row `other` replaces the stored `row`. It does if both have the same name and path, or if the stored path no
// longer exists and lay in the same folder: every batch job has a different scratch path, and the file must not grow with each job.
bool same_figure(const Json& row, const BenchRow& other) {
  if (!row.is_object() || text_at(row, "name") != other.name) return false;
  const fs::path path = text_at(row, "path");
  std::error_code ignored;
  return path == other.path || (path.parent_path() == fs::path(other.path).parent_path() && !fs::exists(path, ignored));
}

[[noreturn]] void cannot_write(const fs::path& file, const std::string& why) {
  throw Error(ErrorCode::io,
              fmt::format("[bench] cannot write {}: {}; set XDG_CACHE_HOME to a folder that you can write to", file.string(), why));
}

void save_text(const fs::path& file, const std::string& text) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error) cannot_write(file, error.message());
  try {
    data::replace_text(file, text);
  } catch (const Error& e) {
    cannot_write(file, e.what());
  }
}

std::optional<dev_t> filesystem_of(const fs::path& path) {
  // If `path` does not exist, as before its first use or after the batch job that owned it, the filesystem of its parent is used.
  struct stat info {};
  const bool known = ::stat(path.c_str(), &info) == 0 || ::stat(path.parent_path().c_str(), &info) == 0;
  return known ? std::optional(info.st_dev) : std::nullopt;
}

}  // namespace

std::optional<double> BenchRow::share() const {
  if (!ceiling || !(value > 0) || !(*ceiling > 0)) return {};
  return unit.starts_with("ns/") ? *ceiling / value : value / *ceiling;
}

double DiskRates::duplex() const {
  const double each_way = mixed_bytes_per_s / 2;
  return std::clamp(each_way / read_bytes_per_s + each_way / write_bytes_per_s, 0.5, 2.0);
}

DiskRates Calibration::disk(const fs::path& path) const {
  std::error_code ignored;
  const fs::path whole = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  for (const DiskRates& disk : disks) {
    if (disk.path == whole) return disk;
  }
  const auto here = filesystem_of(whole);
  for (const DiskRates& disk : disks) {
    if (here && filesystem_of(disk.path) == here) return disk;
  }
  return {};
}

fs::path calibration_file(const Host& host) { return cache_folder(host) / (host_name() + ".json"); }

Calibration load_calibration(const Host& host) {
  Calibration calibration;
  const fs::path file = calibration_file(host);
  std::string reason;
  for (const Json& row : read_rows(file, reason)) {
    const std::string fault = fault_of(row);
    fault.empty() ? take(calibration, row) : void(reason = fault);
  }
  if (!reason.empty()) {
    calibration.warning =
        fmt::format("[calibration] {}: {}; built-in constants replace the missing values; run spillway bench again", file.string(), reason);
  }
  return calibration;
}

void save_bench_rows(const std::vector<BenchRow>& rows, const Host& host) {
  const fs::path file = calibration_file(host);
  std::string ignored;
  Json kept = Json::array();
  for (const Json& row : read_rows(file, ignored)) {
    const bool replaced = std::ranges::any_of(rows, [&](const BenchRow& one) { return !one.busy && same_figure(row, one); });
    if (!replaced && fault_of(row).empty()) kept.push_back(row);
  }
  for (const BenchRow& row : rows) {
    if (!row.busy) kept.push_back(to_json(row));
  }
  save_text(file, whole_text(kept));
}

std::vector<std::string> far_from_kept(const std::vector<BenchRow>& rows, const Host& host) {
  constexpr double kFar = 1.5;
  std::string ignored;
  std::vector<std::string> far;
  for (const Json& kept : read_rows(calibration_file(host), ignored)) {
    const auto row = std::ranges::find_if(rows, [&](const BenchRow& one) { return same_figure(kept, one); });
    if (row == rows.end() || row->busy || !known(row->name) || !fault_of(kept).empty()) continue;
    const double before = number_at(kept, "value"), ratio = row->unit.starts_with("ns/") ? row->value / before : before / row->value;
    if (ratio < kFar && ratio > 1 / kFar) continue;
    far.push_back(
        fmt::format("{}{} is {:.1f} times {} than the value saved before{}", row->name, row->path.empty() ? "" : " of " + row->path,
                    std::max(ratio, 1 / ratio), ratio > 1 ? "slower" : "faster",
                    ratio > 1 ? ": did something slow the node down? Predictions use this value; measure again to replace it" : ""));
  }
  return far;
}

std::string bench_json(const std::vector<BenchRow>& rows) {
  Json all = Json::array();
  for (const BenchRow& row : rows) all.push_back(to_json(row));
  return whole_text(all);
}

}  // namespace spillway::trainer
