// Reads and writes the checksums that a checkpoint folder's manifest.json holds for the folder's files. The manifest is a JSON object with
// other members too. It also carries a checksum of itself ("manifest_crc32c"), computed over its text with that field set to eight zeros.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/files/checked_file.h"

namespace spillway::data {

class FolderChecksums {
 public:
  /// Reads the checksums from the manifest in `folder`. The result is empty if there is no manifest or if the manifest holds
  /// no checksums. Throws Damaged if the manifest does not match its own checksum, and Error(data) if it cannot be read.
  static FolderChecksums of(const std::filesystem::path& folder);

  bool any() const { return !files_.empty(); }
  /// Returns the checksums of a file, or nothing if the manifest has none for it. `file` is the path within the folder, such as
  /// "additional_chat_templates/rag.jinja".
  std::optional<FileChecksums> find(const std::string& file) const;
  const std::map<std::string, FileChecksums>& files() const { return files_; }

  void add(const std::string& file, FileChecksums checksums) { files_.insert_or_assign(file, std::move(checksums)); }
  /// Returns the text of manifest.json: the members of the JSON object `object`, the checksums of the folder's files, and the manifest's
  /// own checksum.
  std::string seal(const std::string& object) const;

 private:
  std::map<std::string, FileChecksums> files_;
};

constexpr const char* kManifestName = "manifest.json";

/// Reads a small file of the folder, 16 MiB at most, and verifies it against its checksum. Throws Damaged or Error(data).
std::string read_checked_text(const FolderChecksums& checksums, const std::filesystem::path& path);

/// Verifies every file for which the folder's manifest has checksums. Returns one sentence for each damaged byte range or missing
/// file; the list is empty if all files match their checksums. Throws Damaged or Error(data) if the manifest itself is bad.
std::vector<std::string> damage_of(const std::filesystem::path& folder);

}  // namespace spillway::data
