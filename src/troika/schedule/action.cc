#include "troika/schedule/action.h"

#include <charconv>

#include "troika/base/error.h"

namespace troika {
namespace {

constexpr Op kOps[] = {Op::load, Op::forward, Op::backward, Op::reduce_gradients, Op::optimizer_step};

bool has_micro_batch(Op op) { return op != Op::reduce_gradients && op != Op::optimizer_step; }

// Reads a number at the front of `text` and removes it; false if there is none.
bool take_number(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

}  // namespace

char letter(Op op) {
  switch (op) {
    case Op::load:
      return 'L';
    case Op::forward:
      return 'F';
    case Op::backward:
      return 'B';
    case Op::reduce_gradients:
      return 'R';
    case Op::optimizer_step:
      return 'O';
  }
  return '?';
}

const char* name_of(Op op) {
  switch (op) {
    case Op::load:
      return "load";
    case Op::forward:
      return "forward";
    case Op::backward:
      return "backward";
    case Op::reduce_gradients:
      return "reduce gradients";
    case Op::optimizer_step:
      return "optimizer step";
  }
  return "?";
}

std::string to_string(const Action& action) {
  if (!has_micro_batch(action.op)) return fmt::format("{}{}", action.stage, letter(action.op));
  return fmt::format("{}{}{}", action.stage, letter(action.op), action.micro_batch);
}

Action parse_action(const std::string& text) {
  Action action;
  std::string_view rest = text;
  bool good = take_number(rest, action.stage) && !rest.empty();
  if (good) {
    good = false;
    for (const Op op : kOps) {
      if (letter(op) != rest.front()) continue;
      action.op = op;
      good = true;
    }
    rest.remove_prefix(1);
  }
  if (good && has_micro_batch(action.op)) good = take_number(rest, action.micro_batch);
  if (!good || !rest.empty()) {
    fail(
        "action \"{}\": expected stage, letter, micro-batch, as in 2F0; the letters are L F B (with a "
        "micro-batch) "
        "and R O (without)",
        text);
  }
  return action;
}

}  // namespace troika
