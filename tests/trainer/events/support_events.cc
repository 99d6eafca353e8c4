#include "tests/trainer/events/support_events.h"

#include <algorithm>
#include <array>
#include <bit>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace spillway::trainer {
namespace {

void must(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

u64 little_endian(std::string_view bytes) {
  u64 value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::string_view take(std::string_view& from, size_t count) {
  must(from.size() >= count, "a message ends too early");
  const std::string_view taken = from.substr(0, count);
  from.remove_prefix(count);
  return taken;
}

u64 varint(std::string_view& from) {
  u64 value = 0;
  for (unsigned shift = 0;; shift += 7) {
    must(shift < 64, "a varint is too long");
    const auto byte = static_cast<unsigned char>(take(from, 1)[0]);
    value |= u64{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
}

struct WireField {
  u64 number = 0, wire = 0, value = 0;
  std::string_view bytes;
};

std::vector<WireField> fields_of(std::string_view message) {
  std::vector<WireField> fields;
  while (!message.empty()) {
    WireField field;
    const u64 key = varint(message);
    field.number = key >> 3;
    field.wire = key & 7;
    if (field.wire == 0) {
      field.value = varint(message);
    } else if (field.wire == 1) {
      field.value = little_endian(take(message, 8));
    } else if (field.wire == 2) {
      field.bytes = take(message, varint(message));
    } else {
      must(field.wire == 5, "an unknown wire type");
      field.value = little_endian(take(message, 4));
    }
    fields.push_back(field);
  }
  return fields;
}

std::vector<double> packed_doubles(std::string_view bytes) {
  std::vector<double> values;
  while (!bytes.empty()) values.push_back(std::bit_cast<double>(little_endian(take(bytes, 8))));
  return values;
}

ReadHistogram histogram_of(std::string_view message) {
  ReadHistogram h;
  double* const numbers[] = {&h.min, &h.max, &h.num, &h.sum, &h.sum_squares};
  for (const WireField& f : fields_of(message)) {
    must(f.number >= 1 && f.number <= 7 && f.wire == (f.number < 6 ? 1 : 2), "a histogram has another field");
    if (f.number < 6) *numbers[f.number - 1] = std::bit_cast<double>(f.value);
    if (f.number == 6) h.bucket_limit = packed_doubles(f.bytes);
    if (f.number == 7) h.bucket = packed_doubles(f.bytes);
  }
  return h;
}

ReadValue value_of(std::string_view message) {
  ReadValue value;
  for (const WireField& f : fields_of(message)) {
    if (f.number == 1) value.tag = f.bytes;
    if (f.number == 2) value.has_number = true, value.number = std::bit_cast<float>(static_cast<u32>(f.value));
    if (f.number == 5) value.histogram = histogram_of(f.bytes);
    if (f.number == 8) {
      for (const WireField& t : fields_of(f.bytes)) {
        if (t.number == 1) value.dtype = static_cast<i64>(t.value);
        if (t.number == 8) value.texts.emplace_back(t.bytes);
      }
    }
    if (f.number == 9) {
      for (const WireField& m : fields_of(f.bytes)) {
        if (m.number == 1) value.plugin = fields_of(m.bytes).at(0).bytes;
      }
    }
  }
  return value;
}

ReadEvent event_of(std::string_view message) {
  ReadEvent event;
  for (const WireField& f : fields_of(message)) {
    if (f.number == 1) event.wall_time = std::bit_cast<double>(f.value);
    if (f.number == 2) event.step = static_cast<i64>(f.value);
    if (f.number == 3) event.file_version = f.bytes;
    if (f.number == 5) {
      for (const WireField& v : fields_of(f.bytes)) event.values.push_back(value_of(v.bytes));
    }
    if (f.number == 7) event.session_status = static_cast<i64>(fields_of(f.bytes).at(0).value);
  }
  return event;
}

bool has_crc(std::string_view bytes, std::string_view masked) {
  const u32 crc = castagnoli(bytes);
  return little_endian(masked) == u32{(crc >> 15 | crc << 17) + 0xa282ead8u};
}

}  // namespace

u32 castagnoli(std::string_view bytes) {
  static const std::array<u32, 256> table = [] {
    std::array<u32, 256> made{};
    for (u32 i = 0; i < made.size(); ++i) {
      made[i] = i;
      for (int bit = 0; bit < 8; ++bit) made[i] = made[i] & 1 ? made[i] >> 1 ^ 0x82F63B78u : made[i] >> 1;
    }
    return made;
  }();
  u32 crc = ~u32{0};
  for (const char c : bytes) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ crc >> 8;
  return ~crc;
}

std::vector<ReadEvent> read_events(std::string_view bytes, size_t* rest) {
  std::vector<ReadEvent> events;
  while (bytes.size() >= 12) {
    must(has_crc(bytes.substr(0, 8), bytes.substr(8, 4)), "the checksum of a length differs");
    const u64 length = little_endian(bytes.substr(0, 8));
    if (bytes.size() < 12 + length + 4) break;
    must(has_crc(bytes.substr(12, length), bytes.substr(12 + length, 4)), "the checksum of a record differs");
    events.push_back(event_of(bytes.substr(12, length)));
    bytes.remove_prefix(12 + length + 4);
  }
  if (rest != nullptr) *rest = bytes.size();
  return events;
}

std::vector<std::filesystem::path> event_files(const std::filesystem::path& run) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

ReadHistograms histograms_in(const std::filesystem::path& run) {
  ReadHistograms all;
  for (const auto& file : event_files(run)) {
    std::ifstream in(file, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(in), {});
    for (const ReadEvent& event : read_events(bytes)) {
      for (auto& [tag, points] : all) {
        if (event.session_status == 1) points.erase(points.lower_bound(event.step), points.end());
      }
      for (const ReadValue& value : event.values) {
        if (value.histogram) must(all[value.tag].emplace(event.step, *value.histogram).second, "a histogram comes twice");
      }
    }
  }
  return all;
}

}  // namespace spillway::trainer
