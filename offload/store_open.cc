// Opens the files that a dead run left, or creates new ones, and checks and writes their header pages.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "base/error.h"
#include "offload/store_files.h"
#include "offload/store_look.h"

namespace spillway::offload {
namespace {

namespace fs = std::filesystem;

// Unusable is thrown, with the reason, if the files that a dead run left cannot be used.
struct Unusable {
  std::string why;
};

std::string quoted(std::string_view text) { return fmt::format("'{}'", text); }

fs::path path_of(const StripePath& path) { return path.folder / kStoreFile; }

StoreHeader read_header(IoEngine& engine, const ScratchFile& file) {
  const std::string name = file.path().string();
  if (file.bytes() < kPageBytes) throw Unusable{name + " is shorter than its header"};
  StoreHeader header{};
  engine.submit({&file, false, 0, kPageBytes, reinterpret_cast<std::byte*>(&header)}).wait();
  if (std::memcmp(header.magic, kStoreMagic, sizeof kStoreMagic) != 0)
    throw Unusable{name + " was never completed, or is not a store file"};
  if (crc_of(header) != header.crc) throw Unusable{"the header of " + name + " is damaged"};
  refuse_newer(header, name);
  if (header.version < kStoreVersion) throw Unusable{fmt::format("{} has the older format {}", name, header.version)};
  return header;
}

// Throws Unusable if a valid header does not match the store that this run needs.
void match(const StoreHeader& header, const StoreDescription& wanted, i64 stripe, const StoreHeader& first, const std::string& name) {
  const std::string_view run_id(header.run_id, ::strnlen(header.run_id, sizeof header.run_id));
  if (run_id != wanted.run_id) throw Unusable{name + " belongs to run " + quoted(run_id)};
  if (header.stripe != stripe || header.stripes != wanted.paths.size() || header.store_id != first.store_id) {
    throw Unusable{
        fmt::format("{} is stripe {} of {} and was made with other --nvme paths or in another order", name, header.stripe, header.stripes)};
  }
  if (header.layout_hash != wanted.layout_hash || header.persistent_tiles != wanted.persistent_tiles ||
      header.stripe_unit_bytes != wanted.stripe_unit_bytes) {
    throw Unusable{name + " has another layout: the model, its placement or the program has changed"};
  }
  if (header.durability != static_cast<u32>(wanted.durability)) throw Unusable{name + " was made with another --durability"};
  if (std::memcmp(header.weights, first.weights, sizeof header.weights) != 0)
    throw Unusable{name + " is striped differently from the other files"};
}

// Returns the striping of existing files, with the weights in their header: newly measured weights would differ a little. How the first
// `data_bytes` bytes are striped does not depend on what follows them.
Stripes stripes_of(const StoreHeader& header, i64 data_bytes) {
  const std::vector<u32> weights(header.weights, header.weights + header.stripes);
  for (const u32 weight : weights) {
    if (weight < 1 || weight > kMaxWeight) throw Unusable{"the header of the earlier store has invalid stripe weights"};
  }
  return Stripes(weights, header.stripe_unit_bytes, data_bytes);
}

std::vector<ScratchFile> open_all(const StoreDescription& description) {
  std::vector<ScratchFile> files;
  std::string missing;
  for (const StripePath& path : description.paths) {
    std::error_code error;
    if (fs::symlink_status(path_of(path), error).type() == fs::file_type::not_found) {
      missing = path_of(path).string() + " is missing";
    } else {
      files.push_back(ScratchFile::open(path_of(path)));
    }
  }
  if (files.empty()) throw Unusable{"there is no earlier store"};
  if (!missing.empty()) throw Unusable{missing};
  return files;
}

StoreFiles open_or_throw(IoEngine& engine, const StoreDescription& description) {
  std::vector<ScratchFile> files = open_all(description);
  std::vector<StoreHeader> headers;
  headers.reserve(files.size());
  for (const ScratchFile& file : files) headers.push_back(read_header(engine, file));
  for (size_t f = 0; f < files.size(); ++f) match(headers[f], description, static_cast<i64>(f), headers[0], files[f].path().string());
  const Stripes persistent = stripes_of(headers[0], description.data_bytes - description.passing_bytes);
  for (size_t f = 0; f < files.size(); ++f) {
    const auto file = static_cast<i64>(f);
    const i64 least_bytes = data_offset(description.persistent_tiles, file) + persistent.file_data_bytes(file);
    if (files[f].bytes() < least_bytes || headers[f].file_bytes < least_bytes) {
      throw Unusable{fmt::format("{} has {} bytes, fewer than the {} bytes that its weights and optimizer state take",
                                 files[f].path().string(), std::min(files[f].bytes(), headers[f].file_bytes), least_bytes)};
    }
  }
  Stripes stripes = stripes_of(headers[0], description.data_bytes);
  return StoreFiles(engine, std::move(files), std::move(stripes), headers[0].store_id, description.persistent_tiles);
}

StoreHeader make_header(const StoreDescription& description, const Stripes& stripes, u64 store_id) {
  StoreHeader header{};
  std::memcpy(header.magic, kStoreMagic, sizeof kStoreMagic);
  header.version = kStoreVersion;
  header.stripes = static_cast<u32>(stripes.files());
  header.durability = static_cast<u32>(description.durability);
  header.store_id = store_id;
  header.layout_hash = description.layout_hash;
  header.data_bytes = description.data_bytes;
  header.persistent_tiles = description.persistent_tiles;
  header.stripe_unit_bytes = description.stripe_unit_bytes;
  std::copy(stripes.weights().begin(), stripes.weights().end(), header.weights);
  std::copy(description.run_id.begin(), description.run_id.end(), header.run_id);
  return header;
}

// Writes the headers from the first file to the last. The store cannot be opened before the last header is written. If the process dies
// before that, the first file shows that the store holds no commit.
void write_headers(IoEngine& engine, const std::vector<ScratchFile>& files, StoreHeader header) {
  for (size_t f = 0; f < files.size(); ++f) {
    header.stripe = static_cast<u32>(f);
    header.file_bytes = files[f].bytes();
    header.crc = crc_of(header);
    engine.submit({&files[f], true, 0, kPageBytes, reinterpret_cast<std::byte*>(&header)}).wait();
  }
}

void make_durable(IoEngine& engine, const std::vector<ScratchFile>& files) {
  for (const ScratchFile& file : files) {
    engine.flush(file);
    flush_folder(file.path().parent_path());
    flush_folder(fs::absolute(file.path()).parent_path().parent_path());
  }
}

}  // namespace

u64 random_store_id() {
  std::random_device random;
  return u64{random()} << 32 | random();
}

void flush_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int error_number = descriptor < 0 || ::fsync(descriptor) != 0 ? errno : 0;
  if (descriptor >= 0) ::close(descriptor);
  if (error_number == 0) return;
  throw Error(ErrorCode::io, fmt::format("[store] fsync of the folder {}: {} (errno {}); give another --nvme path", folder.string(),
                                         std::generic_category().message(error_number), error_number));
}

std::optional<StoreFiles> open_files(IoEngine& engine, const StoreDescription& description, std::string& why) {
  try {
    return open_or_throw(engine, description);
  } catch (const Unusable& reason) {
    why = reason.why;
    return std::nullopt;
  }
}

StoreFiles create_files(IoEngine& engine, const StoreDescription& description) {
  std::vector<u32> weights;
  for (const StripePath& path : description.paths) weights.push_back(path.weight);
  Stripes stripes(std::move(weights), description.stripe_unit_bytes, description.data_bytes);
  std::vector<ScratchFile> files;
  for (i64 f = 0; f < stripes.files(); ++f) {
    const i64 bytes = data_offset(description.persistent_tiles, f) + stripes.file_data_bytes(f);
    files.push_back(ScratchFile::create(path_of(description.paths[static_cast<size_t>(f)]), bytes));
  }
  const u64 store_id = random_store_id();
  write_headers(engine, files, make_header(description, stripes, store_id));
  if (description.durability == Durability::step) make_durable(engine, files);
  for (ScratchFile& file : files) file.keep();
  return StoreFiles(engine, std::move(files), std::move(stripes), store_id, description.persistent_tiles);
}

}  // namespace spillway::offload
