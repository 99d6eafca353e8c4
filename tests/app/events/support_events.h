// A reader of TensorBoard's event files that shares nothing with what writes them: framing, checksums and protobuf's wire format.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace spillway::app {

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

/// The whole records at the beginning; what follows them is `rest` bytes. Throws std::runtime_error at a checksum that differs, or at a
/// message that is none.
std::vector<ReadEvent> read_events(std::string_view bytes, size_t* rest = nullptr);

/// The event files of a run, oldest first.
std::vector<std::filesystem::path> event_files(const std::filesystem::path& run);
/// The histograms of all of them by tag and step, as TensorBoard keeps them: a start drops what is of its step and later ones. Throws at a
/// second one of a tag and step.
using ReadHistograms = std::map<std::string, std::map<i64, ReadHistogram>>;
ReadHistograms histograms_in(const std::filesystem::path& run);

}  // namespace spillway::app
