// The header of a safetensors file as text <-> checked tensor infos. Internal to the safetensors reader and writer; pure functions.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/safetensors.h"

namespace spillway::data {

constexpr i64 kSafetensorsLengthBytes = 8;            // the header's length, unsigned little-endian, stands first
constexpr i64 kSafetensorsHeaderLimit = 100'000'000;  // of the format

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in offset order
  std::map<std::string, std::string> metadata;
};

/// Throws Error(data), "[safetensors] <path>: <why>".
[[noreturn]] void reject_safetensors(const std::filesystem::path& path, const std::string& why);

/// Parses the JSON text of a header whose file has `data_bytes` bytes behind it. Memory stays in proportion to the text: it is read as a
/// stream of tokens, nesting deeper than the format's is refused at once. Throws Error(data), naming `file`.
SafetensorsHeader parse_safetensors_header(const std::string& text, i64 data_bytes, const std::string& file);

/// The JSON text, padded with spaces to a multiple of 8. Throws Error(bug) on names that are not UTF-8.
std::string write_safetensors_header(const SafetensorsHeader& header);

}  // namespace spillway::data
