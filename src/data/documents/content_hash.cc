#include "data/documents/content_hash.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>

#include "base/error.h"
#include "base/thread_pool.h"
#include "data/files/file.h"

namespace spillway::data {
namespace {

// The bytes of a piece that is hashed by itself. If this number changed, the hash of every file would change.
constexpr i64 kHashedBytes = 4 * kMiB;
constexpr size_t kHashBytes = 32;

void make_ready() {
  static const bool ready = sodium_init() >= 0;
  require(ready, "[data] libsodium cannot be initialized");
}

void blake2b(std::span<const std::byte> bytes, std::span<char> into) {
  crypto_generichash(reinterpret_cast<unsigned char*>(into.data()), kHashBytes, reinterpret_cast<const unsigned char*>(bytes.data()),
                     bytes.size(), nullptr, 0);
}

}  // namespace

std::string hash_of_fields(const std::vector<std::string>& fields) {
  make_ready();
  std::string text;
  for (const std::string& field : fields) text += fmt::format("{}:", field.size()) + field;
  std::string raw(kHashBytes, '\0'), hex(2 * kHashBytes + 1, '\0');
  blake2b(std::as_bytes(std::span(text)), raw);
  sodium_bin2hex(hex.data(), hex.size(), reinterpret_cast<const unsigned char*>(raw.data()), raw.size());
  hex.pop_back();
  return hex;
}

std::string hash_of_file(const std::filesystem::path& path, int threads) {
  make_ready();
  const File file = File::open(path);
  const i64 pieces = ceil_div(file.size_bytes(), kHashedBytes);
  std::string hashes(static_cast<size_t>(pieces) * kHashBytes, '\0');
  std::vector<std::vector<std::byte>> rooms(static_cast<size_t>(threads));
  ThreadPool pool(threads);
  pool.run(pieces, [&](i64 p, int thread) {
    const i64 at = p * kHashedBytes;
    std::vector<std::byte>& room = rooms[static_cast<size_t>(thread)];
    room.resize(static_cast<size_t>(std::min(kHashedBytes, file.size_bytes() - at)));
    file.read(at, room);
    blake2b(room, std::span(hashes).subspan(static_cast<size_t>(p) * kHashBytes, kHashBytes));
  });
  return hash_of_fields({std::to_string(file.size_bytes()), hashes});
}

}  // namespace spillway::data
