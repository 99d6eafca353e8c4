// Declares a reader of TensorBoard's event files (framing, checksums, protobuf's wire format) that shares no code with the writer under
// test.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace spillway::trainer {

u32 castagnoli(std::string_view bytes);

struct ReadHistogram {
  double min = 0, max = 0, num = 0, sum = 0, sum_squares = 0;
  std::vector<double> bucket_limit, bucket;
  bool operator==(const ReadHistogram&) const = default;
};
struct ReadValue {
  std::string tag, plugin;
  bool has_number = false;
  float number = 0;
  i64 dtype = 0;
  std::vector<std::string> texts;
  std::optional<ReadHistogram> histogram;
};
struct ReadEvent {
  double wall_time = 0;
  i64 step = 0, session_status = 0;
  std::string file_version;
  std::vector<ReadValue> values;
};

/// Reads the complete event records at the beginning of `bytes`, and sets `rest` to the number of
/// bytes behind them. Throws std::runtime_error if a checksum differs or a message is malformed.
std::vector<ReadEvent> read_events(std::string_view bytes, size_t* rest = nullptr);

/// Returns the event files of a run, oldest first.
std::vector<std::filesystem::path> event_files(const std::filesystem::path& run);
/// Returns the histograms of all event files by tag and step, as TensorBoard shows them: each start event discards
/// the values read before it whose step is its own or a later one. Throws if a tag has two histograms of one step.
using ReadHistograms = std::map<std::string, std::map<i64, ReadHistogram>>;
ReadHistograms histograms_in(const std::filesystem::path& run);

}  // namespace spillway::trainer
