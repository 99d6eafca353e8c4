// Parses and writes the header of a safetensors file: converts JSON text to verified TensorInfos, and
// TensorInfos to JSON text. Only readers and writers of safetensors files include this header. Pure functions.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/safetensors/safetensors.h"

namespace spillway::data {

constexpr i64 kSafetensorsLengthBytes = 8;            // the bytes of the header's length, with which a file begins (little-endian)
constexpr i64 kSafetensorsHeaderLimit = 100'000'000;  // the largest header that the format allows, in bytes

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // the tensors in the order of their offsets in the file
  std::map<std::string, std::string> metadata;
};

/// Throws Error(data) "[safetensors] <path>: <why>".
[[noreturn]] void reject_safetensors(const std::filesystem::path& path, const std::string& why);

/// Parses the JSON text of a header that is followed by `data_bytes` bytes of tensor data. Memory
/// use is proportional to the length of the text: the text is read as a stream of tokens, and
/// nesting deeper than the format's is refused at once. Throws an Error(data) that names `file`.
SafetensorsHeader parse_safetensors_header(const std::string& text, i64 data_bytes, const std::string& file);

/// Returns the JSON text of the header, padded with spaces to a multiple of 8 bytes. Throws Error(bug) if a name is not UTF-8.
std::string write_safetensors_header(const SafetensorsHeader& header);

}  // namespace spillway::data
