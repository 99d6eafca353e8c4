// mma.sync and ldmatrix, stmatrix (PTX ISA 9.0, 9.7.14: "Matrix Fragments for mma"). Sums are cut as tensor cores cut them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "ptx/draft.h"
#include "ptx/narrow.h"
#include "ptx/warp.h"

namespace ptx {
namespace {

constexpr u32 kRows = 16, kColumns = 8, kMostInner = 16;

void whole_warp(u32 mask, const char* what) {
  if (mask != kAllLanes) throw Fault(std::string(what) + " with only the lanes " + hex(mask) + ", expected all");
}

// Adds c and exact products as tensor cores do: each term is truncated below the 24th bit of the largest term, and the sum is truncated
// toward zero. Fasi, Higham, Mikaitis, Pranesh: Numerical behavior of NVIDIA tensor cores (2021).
float cut_sum(float c, const double* products, u32 count) {
  double plain = c, largest = std::abs(double{c});
  for (u32 k = 0; k < count; ++k) {
    plain += products[k];
    largest = std::max(largest, std::abs(products[k]));
  }
  if (!std::isfinite(plain) || largest == 0) return std::isnan(plain) ? std::bit_cast<float>(0x7fffffffu) : static_cast<float>(plain);
  const u64 exponent = std::bit_cast<u64>(largest) >> 52;
  const auto scale = std::bit_cast<double>((2 * 1023 + 24 - exponent) << 52);
  auto units = static_cast<i64>(c * scale);
  for (u32 k = 0; k < count; ++k) units += static_cast<i64>(products[k] * scale);
  const double sum = static_cast<double>(units) / scale;
  const auto near = static_cast<float>(sum);
  return std::abs(double{near}) > std::abs(sum) ? std::nextafter(near, 0.0f) : near;
}

float element(const Type& t, u32 word, u32 which) {
  if (t.kind == Kind::half) return from_half(static_cast<u16>(word >> (16 * which)));
  if (t.kind == Kind::brain) return from_brain(static_cast<u16>(word >> (16 * which)));
  return std::bit_cast<float>(word & ~0x1fffu);  // tf32: the hardware ignores the 13 lowest bits
}

// m16n8k16 and m16n8k8 of f16 and bf16, m16n8k8 and m16n8k4 of tf32, with f32 sums. mode: k. type: of a and b. A register of a or b
// holds `packed` elements that lie side by side along k; lane l's are at 4 lanes' worth of k.
void multiply(Warp& w, const Instruction& i, u32 mask) {
  whole_warp(mask, "mma.sync");
  ++w.block->counters.products;
  const u32 inner = static_cast<u32>(i.mode), packed = static_cast<u32>(i.mode2), along = 4 * packed;
  float a[kRows][kMostInner], b[kMostInner][kColumns], c[kRows][kColumns];
  const u32 steps = inner / along;  // registers of b; a has two for each: rows l / 4 and l / 4 + 8
  for (u32 l = 0; l < kLanes; ++l) {
    const u32 group = l / 4, quad = l % 4;
    for (u32 s = 0; s < steps; ++s) {
      for (u32 p = 0; p < packed; ++p) {
        const u32 k = s * along + quad * packed + p;
        for (u32 half = 0; half < 2; ++half) a[group + 8 * half][k] = element(i.type, w.in<u32>(i.from[2 * s + half])[l], p);
        b[k][group] = element(i.type, w.in<u32>(i.from[2 * steps + s])[l], p);
      }
    }
    for (u32 e = 0; e < 4; ++e) c[group + 8 * (e / 2)][quad * 2 + e % 2] = w.in<float>(i.from[3 * steps + e])[l];
  }
  const u32 at_once = std::min(inner, 32u / (8u / packed));  // the hardware adds 8 products of 16 bits, or 4 of tf32, at once
  for (u32 row = 0; row < kRows; ++row) {
    for (u32 column = 0; column < kColumns; ++column) {
      for (u32 first = 0; first < inner; first += at_once) {
        double products[kMostInner];
        for (u32 k = 0; k < at_once; ++k) products[k] = double{a[row][first + k]} * b[first + k][column];
        c[row][column] = cut_sum(c[row][column], products, at_once);
      }
    }
  }
  for (u32 l = 0; l < kLanes; ++l) {
    for (u32 e = 0; e < 4; ++e) w.out<float>(i.to[e])[l] = c[l / 4 + 8 * (e / 2)][l % 4 * 2 + e % 2];
  }
}

void addresses_of_rows(const Warp& w, const Instruction& i, std::array<u64, kLanes>& to) {
  for (u32 l = 0; l < kLanes; ++l)
    to[l] = (i.from[0].bytes == 8 ? w.in<u64>(i.from[0])[l] : w.in<u32>(i.from[0])[l]) + static_cast<u64>(i.offset);
}
// Each eight lanes' rows of 16 bytes are one request.
void count_rows(Warp& w, const std::array<u64, kLanes>& a, u32 matrices, bool is_load) {
  if (!counts()) return;
  for (u32 m = 0; m < matrices; ++m) w.block->counters.request(Space::shared, a, 0xffu << (8 * m), 16, is_load);
}

// mode: .trans
void load_matrix(Warp& w, const Instruction& i, u32 mask) {
  whole_warp(mask, "ldmatrix");
  std::array<u64, kLanes> a;
  addresses_of_rows(w, i, a);
  count_rows(w, a, i.to_count, true);
  for (u32 m = 0; m < i.to_count; ++m) {
    u16 rows[8][8];
    for (u32 r = 0; r < 8; ++r) std::memcpy(rows[r], w.block->memory.at(w, 8 * m + r, i.space, a[8 * m + r], 16, Memory::Use::read), 16);
    u32* to = w.out<u32>(i.to[m]);
    for (u32 l = 0; l < kLanes; ++l) {
      const u32 r = l / 4, c = l % 4 * 2;
      to[l] = i.mode != 0 ? rows[c][r] | u32{rows[c + 1][r]} << 16 : rows[r][c] | u32{rows[r][c + 1]} << 16;
    }
  }
}

void store_matrix(Warp& w, const Instruction& i, u32 mask) {
  whole_warp(mask, "stmatrix");
  std::array<u64, kLanes> a;
  addresses_of_rows(w, i, a);
  const u32 matrices = i.from_count - 1u;
  count_rows(w, a, matrices, false);
  for (u32 m = 0; m < matrices; ++m) {
    u16 rows[8][8];
    const u32* from = w.in<u32>(i.from[1 + m]);
    for (u32 l = 0; l < kLanes; ++l) {
      for (u32 p = 0; p < 2; ++p) {
        const u32 r = l / 4, c = l % 4 * 2 + p;
        (i.mode != 0 ? rows[c][r] : rows[r][c]) = static_cast<u16>(from[l] >> (16 * p));
      }
    }
    for (u32 r = 0; r < 8; ++r) std::memcpy(w.block->memory.at(w, 8 * m + r, i.space, a[8 * m + r], 16, Memory::Use::write), rows[r], 16);
  }
}

}  // namespace

bool decode_tensor_core(Draft& d) {
  Instruction& i = d.instruction;
  if (d.name == "mma") {
    // mma.sync.aligned.shape.row.col.f32.atype.btype.f32
    if (d.modifiers.size() != 9 || d.types.size() != 4 || d.modifiers[3] != "row" || d.modifiers[4] != "col") return false;
    const std::string& shape = d.modifiers[2];
    i.type = d.types[1];
    const bool halves = i.type.kind == Kind::half || i.type.kind == Kind::brain, tf32 = d.modifiers[6] == "tf32";
    i.mode = shape == "m16n8k16" ? 16 : shape == "m16n8k8" ? 8 : shape == "m16n8k4" ? 4 : 0;
    i.mode2 = halves ? 2 : 1;
    const bool is_known = (halves && i.mode >= 8) || (tf32 && (i.mode == 8 || i.mode == 4));
    if (!is_known || d.modifiers[5] != "f32" || d.modifiers[8] != "f32" || d.modifiers[6] != d.modifiers[7]) return false;
    i.execute = &multiply;
    for (const std::string& one : Draft::listed(d.arguments.at(0))) d.add_to(one, 4);
    for (std::size_t k = 1; k < 4; ++k) {
      for (const std::string& one : Draft::listed(d.arguments.at(k))) d.add_from(one, 4);
    }
    const int steps = i.mode / (4 * i.mode2);
    if (i.to_count != 4 || i.from_count != 3 * steps + 4) d.refuse("a wrong number of registers");
    return true;
  }
  if ((d.name == "ldmatrix" || d.name == "stmatrix") && d.is("m8n8") && d.type().bytes == 2) {
    const bool is_load = d.name == "ldmatrix";
    d.take_space();
    i.mode = d.is("trans");
    i.from[i.from_count++] = d.operands.address(d.arguments.at(is_load ? 1 : 0), i.offset, i.space);
    for (const std::string& one : Draft::listed(d.arguments.at(is_load ? 0 : 1))) is_load ? d.add_to(one, 4) : d.add_from(one, 4);
    i.execute = is_load ? &load_matrix : &store_matrix;
    return true;
  }
  return false;
}

}  // namespace ptx
