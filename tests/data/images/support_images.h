// Makes IDX files, plain and gzipped, and gives tests access to the pictures of make_pictures.py.
#pragma once
#include <zlib.h>

#include "data/images/picture.h"
#include "tests/data/support_files.h"
#include "tests/support/fixtures.h"

namespace spillway::data {

inline std::string big_endian(const std::vector<u32>& words) {
  std::string bytes;
  for (const u32 word : words) {
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(word >> shift);
  }
  return bytes;
}

/// Returns an IDX file of images in which pixel p of image i is 7 i + p. Image i has class i % 10.
inline std::string idx_images(u32 count, u32 rows, u32 columns) {
  std::string bytes = big_endian({0x803, count, rows, columns});
  for (u32 i = 0; i < count; ++i) {
    for (u32 p = 0; p < rows * columns; ++p) bytes += static_cast<char>(7 * i + p);
  }
  return bytes;
}
inline std::string idx_labels(u32 count) {
  std::string bytes = big_endian({0x801, count});
  for (u32 i = 0; i < count; ++i) bytes += static_cast<char>(i % 10);
  return bytes;
}

inline std::string gzipped(const std::string& bytes) {
  z_stream z{};
  require(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK, "zlib");
  std::string packed(deflateBound(&z, bytes.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = static_cast<uInt>(packed.size());
  require(deflate(&z, Z_FINISH) == Z_STREAM_END, "zlib");
  packed.resize(z.total_out);
  deflateEnd(&z);
  return packed;
}

inline std::string picture_bytes(const std::string& name) { return test::bytes_of(test::data("pictures") / name); }

/// Reads a PPM (P6) or PGM (P5) file as Pillow writes it.
inline Picture netpbm(const std::string& name) {
  const std::string bytes = picture_bytes(name);
  std::istringstream header(bytes);
  std::string kind;
  i64 width = 0, height = 0, most = 0;
  header >> kind >> width >> height >> most;
  const i64 channels = kind == "P6" ? 3 : 1;
  const auto begin = bytes.end() - height * width * channels;
  return {height, width, channels, std::vector<u8>(begin, bytes.end())};
}

}  // namespace spillway::data
