// Comparisons, selections and logic of predicates (PTX ISA 9.0, 9.7.7 and 9.7.8).
#include <bit>
#include <cmath>
#include <map>

#include "ptx/draft.h"
#include "ptx/narrow.h"
#include "ptx/warp.h"

namespace ptx {
namespace {

enum Relation { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };
enum Logic { only, with_and, with_or, with_xor };

template <class T, int kRelation>
bool holds(T a, T b) {
  const bool unordered = a != a || b != b;
  switch (kRelation) {
    case eq:
      return a == b;
    case ne:
      return !unordered && a != b;
    case lt:
      return a < b;
    case le:
      return a <= b;
    case gt:
      return a > b;
    case ge:
      return a >= b;
    case equ:
      return unordered || a == b;
    case neu:
      return unordered || a != b;
    case ltu:
      return unordered || a < b;
    case leu:
      return unordered || a <= b;
    case gtu:
      return unordered || a > b;
    case geu:
      return unordered || a >= b;
    case num:
      return !unordered;
    default:
      return unordered;
  }
}

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

struct AsHalf {
  u16 bits;
};
struct AsBrain {
  u16 bits;
};
float numeric(AsHalf x, bool) { return from_half(x.bits); }
float numeric(AsBrain x, bool) { return from_brain(x.bits); }
float numeric(float x, bool flush) { return flush ? flushed(x) : x; }
template <class T>
T numeric(T x, bool) {
  return x;
}

template <class T, int kRelation>
u32 compare(const Warp& w, const Instruction& i) {
  const T *a = w.in<T>(i.from[0]), *b = w.in<T>(i.from[1]);
  u8 all[kLanes];
  for (u32 l = 0; l < kLanes; ++l)
    all[l] = holds<decltype(numeric(a[l], false)), kRelation>(numeric(a[l], i.flush), numeric(b[l], i.flush));
  u32 bits = 0;
  for (u32 l = 0; l < kLanes; ++l) bits |= u32{all[l]} << l;
  return bits;
}

template <class T, int kRelation>
void set_predicates(Warp& w, const Instruction& i, u32 mask) {
  const u32 bits = compare<T, kRelation>(w, i);
  const auto with = [&](u32 x) {
    if (i.mode == only) return x;
    const u32 other = w.predicate(i.from[2]);
    return i.mode == with_and ? x & other : i.mode == with_or ? x | other : x ^ other;
  };
  const u32 first = with(bits), second = with(~bits);
  w.set_predicate(i.to[0], first, mask);
  if (i.to_count > 1) w.set_predicate(i.to[1], second, mask);
}
// set: all ones, or 1.0 where the result is a float.
template <class T, int kRelation>
void set_word(Warp& w, const Instruction& i, u32 mask) {
  const u32 bits = compare<T, kRelation>(w, i), yes = i.type2.kind == Kind::floating ? std::bit_cast<u32>(1.0f) : ~0u;
  set_lanes(w.out<u32>(i.to[0]), mask, [&](u32 l) { return (bits >> l & 1) != 0 ? yes : 0u; });
}

template <class T, int kRelation>
Execute pick_use(bool word) {
  return word ? &set_word<T, kRelation> : &set_predicates<T, kRelation>;
}
template <class T>
Execute pick_relation(int relation, bool word) {
  constexpr Execute (*all[])(bool) = {pick_use<T, eq>,  pick_use<T, ne>,  pick_use<T, lt>,  pick_use<T, le>,  pick_use<T, gt>,
                                      pick_use<T, ge>,  pick_use<T, equ>, pick_use<T, neu>, pick_use<T, ltu>, pick_use<T, leu>,
                                      pick_use<T, gtu>, pick_use<T, geu>, pick_use<T, num>, pick_use<T, nan>};
  return all[relation](word);
}
Execute pick_type(const Type& t, int relation, bool word) {
  if (t.kind == Kind::half && t.elements == 1) return pick_relation<AsHalf>(relation, word);
  if (t.kind == Kind::brain && t.elements == 1) return pick_relation<AsBrain>(relation, word);
  if (t.kind == Kind::floating) return t.bytes == 8 ? pick_relation<double>(relation, word) : pick_relation<float>(relation, word);
  switch (t.is_signed() ? -t.bytes : t.bytes) {
    case 2:
      return pick_relation<u16>(relation, word);
    case 4:
      return pick_relation<u32>(relation, word);
    case 8:
      return pick_relation<u64>(relation, word);
    case -2:
      return pick_relation<i16>(relation, word);
    case -4:
      return pick_relation<i32>(relation, word);
    case -8:
      return pick_relation<i64>(relation, word);
    default:
      throw std::runtime_error("a comparison of this type is not known");
  }
}

template <class T>
void select(Warp& w, const Instruction& i, u32 mask) {
  const T *a = w.in<T>(i.from[0]), *b = w.in<T>(i.from[1]);
  const u32 bits = w.predicate(i.from[2]);
  set_lanes(w.out<T>(i.to[0]), mask, [&](u32 l) { return (bits >> l & 1) != 0 ? a[l] : b[l]; });
}
template <class T, class Sign>
void select_by_sign(Warp& w, const Instruction& i, u32 mask) {
  const T *a = w.in<T>(i.from[0]), *b = w.in<T>(i.from[1]);
  const Sign* c = w.in<Sign>(i.from[2]);
  set_lanes(w.out<T>(i.to[0]), mask, [&](u32 l) { return c[l] >= 0 ? a[l] : b[l]; });
}

enum PredicateOp { p_and, p_or, p_xor, p_not, p_move };
void predicates(Warp& w, const Instruction& i, u32 mask) {
  const u32 a = w.predicate(i.from[0]), b = i.from_count > 1 ? w.predicate(i.from[1]) : 0;
  const u32 all[] = {a & b, a | b, a ^ b, ~a, a};
  w.set_predicate(i.to[0], all[i.mode], mask);
}

void set_predicate_operands(Draft& d, const std::string& to) {
  const std::size_t bar = to.find('|');
  d.add_to(trimmed(to.substr(0, bar)), 0);
  if (bar != std::string::npos) d.add_to(trimmed(to.substr(bar + 1)), 0);
}

}  // namespace

bool decode_comparison(Draft& d) {
  Instruction& i = d.instruction;
  const std::string& n = d.name;
  const Type t = d.type();
  if (t.kind == Kind::predicate) {
    const std::map<std::string, PredicateOp> all = {{"and", p_and}, {"or", p_or}, {"xor", p_xor}, {"not", p_not}, {"mov", p_move}};
    const auto op = all.find(n);
    if (op == all.end()) return false;
    i.mode = op->second;
    i.execute = &predicates;
    d.add_to(d.arguments.at(0), 0);
    for (std::size_t k = 1; k < d.arguments.size(); ++k) d.add_from(d.arguments[k], 0);
    return true;
  }
  if (n == "setp" || n == "set") {
    static const std::map<std::string, int> relations = {
        {"eq", eq}, {"ne", ne},   {"lt", lt},   {"le", le},   {"gt", gt},   {"ge", ge},   {"lo", lt},   {"ls", le},   {"hi", gt},
        {"hs", ge}, {"equ", equ}, {"neu", neu}, {"ltu", ltu}, {"leu", leu}, {"gtu", gtu}, {"geu", geu}, {"num", num}, {"nan", nan}};
    const auto relation = relations.find(d.modifiers.at(0));
    if (relation == relations.end() || d.arguments.size() < 3 || (n == "set" && d.arguments.size() != 3)) return false;
    i.mode = d.is("and") ? with_and : d.is("or") ? with_or : d.is("xor") ? with_xor : only;
    i.execute = pick_type(t, relation->second, n == "set");
    n == "set" ? d.add_to(d.arguments[0], 4) : set_predicate_operands(d, d.arguments[0]);
    d.add_from(d.arguments[1], t.bytes);
    d.add_from(d.arguments[2], t.bytes);
    if (d.arguments.size() > 3) d.add_from(d.arguments[3], 0);
    return true;
  }
  if (n == "selp") {
    i.execute = t.bytes == 8 ? &select<u64> : t.bytes == 4 ? &select<u32> : &select<u16>;
    d.add_to(d.arguments.at(0), t.bytes);
    d.add_from(d.arguments.at(1), t.bytes);
    d.add_from(d.arguments.at(2), t.bytes);
    d.add_from(d.arguments.at(3), 0);
    return true;
  }
  if (n == "slct" && d.types.size() == 2 && d.types[0].bytes >= 4) {
    const bool wide = d.types[0].bytes == 8, real = d.types[1].kind == Kind::floating;
    i.execute = wide ? (real ? &select_by_sign<u64, float> : &select_by_sign<u64, i32>)
                     : (real ? &select_by_sign<u32, float> : &select_by_sign<u32, i32>);
    d.add_to(d.arguments.at(0), d.types[0].bytes);
    d.add_from(d.arguments.at(1), d.types[0].bytes);
    d.add_from(d.arguments.at(2), d.types[0].bytes);
    d.add_from(d.arguments.at(3), 4);
    return true;
  }
  return false;
}

}  // namespace ptx
