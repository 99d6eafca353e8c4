#include "data/safetensors/folder_checksums.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/crc32c.h"
#include "base/json.h"
#include "data/safetensors/safetensors.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char *kOwnKey = "manifest_crc32c", *kKey = "checksums", *kZeros = "00000000";
constexpr i64 kManifestLimitBytes = i64{1} << 30;  // the limit on the manifest's size: enough for a checkpoint of 32 TiB
constexpr size_t kDigits = 8;

[[noreturn]] void reject(const fs::path& manifest, const std::string& why) {
  throw Error(ErrorCode::data, fmt::format("[checkpoint] {}: {}", manifest.string(), why));
}

std::string hex(std::span<const u32> numbers) {
  std::string text;
  text.reserve(numbers.size() * kDigits);
  for (const u32 n : numbers) fmt::format_to(std::back_inserter(text), "{:08x}", n);
  return text;
}

std::optional<u32> number(std::string_view digits) {
  u32 n = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n, 16);
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(n) : std::nullopt;
}

std::string whole_text(const fs::path& path, i64 limit_bytes, std::optional<FileChecksums> checksums = {}) {
  const CheckedFile file(path, std::move(checksums));
  if (file.size_bytes() > limit_bytes) reject(path, fmt::format("expected at most {} bytes, got {}", limit_bytes, file.size_bytes()));
  std::string text(static_cast<size_t>(file.size_bytes()), ' ');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

// Returns where in the manifest's text the eight hex digits of its own checksum begin, or npos if the manifest has no such checksum.
size_t own_place(const std::string& text) {
  const std::string before = fmt::format("\"{}\": \"", kOwnKey);
  const size_t at = text.find(before);
  return at == text.npos || at + before.size() + kDigits > text.size() ? text.npos : at + before.size();
}

u32 own_checksum(std::string text, size_t place) { return crc32c(std::as_bytes(std::span(text.replace(place, kDigits, kZeros)))); }

FileChecksums parse_file(const fs::path& manifest, const std::string& name, const json& entry) {
  if (!entry.is_object() || !entry.contains("bytes") || !entry["bytes"].is_number_unsigned() || !entry.contains("crc32c") ||
      !entry["crc32c"].is_string()) {
    reject(manifest, "expected `bytes` and `crc32c` for the file " + in_quotes(name));
  }
  constexpr u64 kMost = u64{1} << 62;
  const u64 bytes = entry["bytes"].get<u64>();
  const std::string& digits = entry["crc32c"].get_ref<const std::string&>();
  if (bytes > kMost || FileChecksums::block_count(static_cast<i64>(bytes)) != static_cast<i64>(digits.size() / kDigits) ||
      digits.size() % kDigits != 0) {
    reject(manifest,
           fmt::format("the checksums of the file {} of {} bytes cannot have {} digits in all", in_quotes(name), bytes, digits.size()));
  }
  FileChecksums checksums{static_cast<i64>(bytes), {}};
  for (size_t at = 0; at < digits.size(); at += kDigits) {
    const auto n = number(std::string_view(digits).substr(at, kDigits));
    if (!n) reject(manifest, "expected hexadecimal checksums for the file " + in_quotes(name));
    checksums.blocks.push_back(*n);
  }
  return checksums;
}

// Names the tensors to which bytes [begin, end) of a safetensors file belong. Returns
// an empty string for other kinds of files, and if the header cannot be read.
std::string tensors_in(const fs::path& path, i64 begin, i64 end) {
  try {
    return path.extension() == ".safetensors" ? SafetensorsReader(path).describe(begin, end) : "";
  } catch (const Error&) {
    return "";
  }
}

void find_damage(const fs::path& path, const FileChecksums& checksums, std::vector<std::string>& found) try {
  const CheckedFile file(path, checksums);
  std::vector<std::byte> block(static_cast<size_t>(kChecksumBlockBytes));
  i64 begin = -1, end = 0;  // the damaged range found so far; begin is -1 if there is none
  const auto close = [&] {
    if (begin >= 0) found.push_back(Damaged(path, begin, end, tensors_in(path, begin, end)).wrong());
    begin = -1;
  };
  for (i64 at = 0; at < checksums.bytes; at += kChecksumBlockBytes) {
    try {
      file.read(at, std::span(block).first(static_cast<size_t>(std::min(kChecksumBlockBytes, checksums.bytes - at))));
      close();
    } catch (const Damaged& e) {
      if (begin < 0) begin = e.begin();
      end = e.end();
    }
  }
  close();
} catch (const Damaged& e) {
  found.push_back(e.wrong());
} catch (const Error& e) {
  if (e.code() == ErrorCode::bug) throw;
  found.emplace_back(e.what());
}

// Returns true if `name` is a relative path that stays inside the folder and is in normal form. Normal form ensures that each file has only
// one name.
bool is_inside(const std::string& name) {
  const fs::path path(name);
  if (name.empty() || name == "." || path.is_absolute() || !path.has_filename()) return false;
  return path.lexically_normal() == name && *path.begin() != "..";
}

}  // namespace

FolderChecksums FolderChecksums::of(const fs::path& folder) {
  const fs::path manifest = folder / kManifestName;
  std::error_code error;
  if (!fs::exists(manifest, error)) return {};
  const std::string text = whole_text(manifest, kManifestLimitBytes);
  const size_t place = own_place(text);
  if (place == text.npos) {
    const bool ours = text.find(fmt::format("\"{}\"", kKey)) != text.npos && text.find("\"block_bytes\"") != text.npos;
    if (!ours) return {};  // the manifest was not written by this program, or by a version without checksums
    throw Damaged(manifest, 0, static_cast<i64>(text.size()));
  }
  if (number(std::string_view(text).substr(place, kDigits)) != own_checksum(text, place))
    throw Damaged(manifest, 0, static_cast<i64>(text.size()));
  const json object = parse_json(text);
  const auto found = object.is_object() ? object.find(kKey) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_object() || found->value("block_bytes", json()) != kChecksumBlockBytes ||
      !found->contains("files") || !(*found)["files"].is_object()) {
    reject(manifest,
           fmt::format("expected `{}` with the checksums of files in blocks of {} bytes, got something else", kKey, kChecksumBlockBytes));
  }
  FolderChecksums checksums;
  for (const auto& [name, entry] : (*found)["files"].items()) {
    if (!is_inside(name)) reject(manifest, "expected the name of a file inside the folder, got " + in_quotes(name));
    checksums.add(name, parse_file(manifest, name, entry));
  }
  return checksums;
}

std::optional<FileChecksums> FolderChecksums::find(const std::string& file) const {
  const auto found = files_.find(file);
  return found == files_.end() ? std::nullopt : std::optional(found->second);
}

std::string FolderChecksums::seal(const std::string& object) const {
  json manifest = parse_json(object);
  json& checksums = manifest[kKey] = {{"block_bytes", kChecksumBlockBytes}, {"files", json::object()}};
  for (const auto& [name, file] : files_) checksums["files"][name] = {{"bytes", file.bytes}, {"crc32c", hex(file.blocks)}};
  manifest[kOwnKey] = kZeros;
  std::string text = manifest.dump(2) + "\n";
  const size_t place = own_place(text);
  return text.replace(place, kDigits, fmt::format("{:08x}", own_checksum(text, place)));
}

std::string read_checked_text(const FolderChecksums& checksums, const fs::path& path) {
  return whole_text(path, 16 * kMiB, checksums.find(path.filename().string()));
}

std::vector<std::string> damage_of(const fs::path& folder) {
  std::vector<std::string> found;
  const FolderChecksums all = FolderChecksums::of(folder);
  for (const auto& [name, checksums] : all.files()) find_damage(folder / name, checksums, found);
  return found;
}

}  // namespace spillway::data
