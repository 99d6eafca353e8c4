// Numbers, words and paths as Python gives them, read exactly. nanobind's own readers round whole numbers to doubles, take bools for whole
// numbers, and answer what they cannot read with a TypeError. These keep what is wrong until the argument is used, which then refuses it
// with a UsageError. Reading wants the GIL; using does not.
#pragma once
#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::python {

namespace nb = nanobind;

/// What is wrong with an argument; empty: nothing.
struct Problem {
  std::string text;
  bool of_type = false;
  /// Throws WrongType or WrongValue.
  void check() const;
};

/// It is not what was wanted.
Problem of_type(const char* wanted, const nb::handle& given);

/// An int, or what has __index__ (NumPy's integers), within 64 bits. A bool is none, nor is a float.
class Whole {
 public:
  static Whole read(const nb::handle& given) noexcept;
  operator i64() const { return problem_.check(), value_; }  // NOLINT: it stands for the number
  /// Within 32 bits, as axes and sizes of windows are.
  int small() const;
  bool is_whole() const { return !problem_.of_type; }

 private:
  i64 value_ = 0;
  Problem problem_;
};

/// A whole number from 0 to 2^64 - 1: a seed.
class Seed {
 public:
  static Seed read(const nb::handle& given) noexcept;
  operator u64() const { return problem_.check(), value_; }  // NOLINT

 private:
  u64 value_ = 0;
  Problem problem_;
};

/// A number that a double holds exactly where it is a whole one. NaN and infinities are numbers.
class Real {
 public:
  static Real read(const nb::handle& given) noexcept;
  operator double() const { return problem_.check(), value_; }  // NOLINT
  bool is_number() const { return !problem_.of_type; }

 private:
  double value_ = 0;
  Problem problem_;
};

/// A Real beside a tensor in an expression: what is no number is left to the other side's operators.
struct Operand {
  Real number;
};

/// One whole number, or a short sequence of them: a shape, axes.
class Wholes {
 public:
  static Wholes read(const nb::handle& given) noexcept;
  std::vector<i64> all() const;
  std::vector<int> small() const;

 private:
  std::vector<Whole> all_;
  Problem problem_;
};

/// A str that UTF-8 can hold, without a null character.
class Word {
 public:
  static Word read(const nb::handle& given) noexcept;
  operator const std::string&() const { return problem_.check(), text_; }  // NOLINT
  const std::string& text() const { return *this; }

 private:
  std::string text_;
  Problem problem_;
};

/// A bool, and nothing that is only as good as one.
class Flag {
 public:
  static Flag read(const nb::handle& given) noexcept;
  operator bool() const { return problem_.check(), value_; }  // NOLINT

 private:
  bool value_ = false;
  Problem problem_;
};

/// The bytes of a str, bytes or os.PathLike as the system has them. Throws WrongType or WrongValue on another and on a null byte.
std::string path_of(const nb::handle& given);
/// str(given), where UTF-8 can hold it: names of types and devices.
std::string words_of(const nb::handle& given);
/// iter(given). Throws WrongType with `otherwise` where there is none, or where it is a str or bytes.
nb::object iterator_of(const nb::handle& given, const std::string& otherwise);
/// What Python calls its type.
std::string kind_of(const nb::handle& given);

}  // namespace spillway::python

namespace nanobind::detail {

template <class Argument>
struct argument_caster {
  template <class T>
  using Cast = movable_cast_t<T>;
  template <class T>
  static constexpr bool can_cast() {
    return true;
  }
  using Value = Argument;
  explicit operator Argument*() { return &value; }
  explicit operator Argument&() { return value; }
  explicit operator Argument&&() { return static_cast<Argument&&>(value); }
  bool from_python(handle given, uint32_t, cleanup_list*) noexcept {
    value = Argument::read(given);
    return true;
  }
  Argument value;
};
template <>
struct type_caster<spillway::python::Whole> : argument_caster<spillway::python::Whole> {
  static constexpr auto Name = const_name("int");
};
template <>
struct type_caster<spillway::python::Seed> : argument_caster<spillway::python::Seed> {
  static constexpr auto Name = const_name("int");
};
template <>
struct type_caster<spillway::python::Real> : argument_caster<spillway::python::Real> {
  static constexpr auto Name = const_name("float");
};
template <>
struct type_caster<spillway::python::Wholes> : argument_caster<spillway::python::Wholes> {
  static constexpr auto Name = const_name("int | collections.abc.Sequence[int]");
};
template <>
struct type_caster<spillway::python::Word> : argument_caster<spillway::python::Word> {
  static constexpr auto Name = const_name("str");
};
template <>
struct type_caster<spillway::python::Flag> : argument_caster<spillway::python::Flag> {
  static constexpr auto Name = const_name("bool");
};
template <>
struct type_caster<spillway::python::Operand> {
  NB_TYPE_CASTER(spillway::python::Operand, const_name("float"))
  bool from_python(handle given, uint32_t, cleanup_list*) noexcept {
    value.number = spillway::python::Real::read(given);
    return value.number.is_number();
  }
};

}  // namespace nanobind::detail
