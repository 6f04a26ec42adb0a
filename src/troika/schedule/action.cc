#include "troika/schedule/action.h"

#include <algorithm>
#include <charconv>

#include "troika/base/error.h"
#include "troika/base/text.h"

namespace troika {
namespace {

char arrow(Op op) { return is_send(op) ? '>' : '<'; }

// Reads a number at the front of `text` and removes it; false if there is none.
bool take_number(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool take_letters(std::string_view& text, Op& op) {
  size_t size = 0;
  while (size < text.size() && text[size] >= 'A' && text[size] <= 'Z') ++size;
  const auto found = std::ranges::find(kAllOps, text.substr(0, size), letters);
  if (found == kAllOps.end()) return false;
  op = *found;
  text.remove_prefix(size);
  return true;
}

bool take_peer(std::string_view& text, Action& action) {
  if (text.empty() || text.front() != arrow(action.op)) return false;
  text.remove_prefix(1);
  return take_number(text, action.peer);
}

}  // namespace

std::string_view letters(Op op) {
  switch (op) {
    case Op::load:
      return "L";
    case Op::forward:
      return "F";
    case Op::recompute:
      return "C";
    case Op::backward:
      return "B";
    case Op::backward_input:
      return "I";
    case Op::backward_weight:
      return "W";
    case Op::reduce_gradients:
      return "R";
    case Op::optimizer_step:
      return "O";
    case Op::send_activation:
      return "SF";
    case Op::receive_activation:
      return "RF";
    case Op::send_gradient:
      return "SG";
    case Op::receive_gradient:
      return "RG";
  }
  return "?";
}

std::string_view name_of(Op op) {
  switch (op) {
    case Op::load:
      return "load";
    case Op::forward:
      return "forward";
    case Op::recompute:
      return "recompute";
    case Op::backward:
      return "backward";
    case Op::backward_input:
      return "backward, input part";
    case Op::backward_weight:
      return "backward, weight part";
    case Op::reduce_gradients:
      return "reduce gradients";
    case Op::optimizer_step:
      return "optimizer step";
    case Op::send_activation:
      return "send activation";
    case Op::receive_activation:
      return "receive activation";
    case Op::send_gradient:
      return "send gradient";
    case Op::receive_gradient:
      return "receive gradient";
  }
  return "?";
}

bool is_pass(Op op) {
  return op == Op::forward || op == Op::recompute || op == Op::backward || op == Op::backward_input ||
         op == Op::backward_weight;
}

bool has_input_part(Op op) { return op == Op::backward || op == Op::backward_input; }

bool has_weight_part(Op op) { return op == Op::backward || op == Op::backward_weight; }

bool is_whole_stage(Op op) { return op == Op::reduce_gradients || op == Op::optimizer_step; }

bool is_message(Op op) { return is_send(op) || op == Op::receive_activation || op == Op::receive_gradient; }

bool is_send(Op op) { return op == Op::send_activation || op == Op::send_gradient; }

std::string to_string(const Action& action) {
  std::string text = fmt::format("{}{}", action.stage, letters(action.op));
  if (!is_whole_stage(action.op)) text += std::to_string(action.micro_batch);
  if (is_message(action.op)) text += fmt::format("{}{}", arrow(action.op), action.peer);
  return text;
}

Action parse_action(std::string_view text) {
  Action action;
  std::string_view rest = text;
  const bool good = take_number(rest, action.stage) && take_letters(rest, action.op) &&
                    (is_whole_stage(action.op) || take_number(rest, action.micro_batch)) &&
                    (!is_message(action.op) || take_peer(rest, action));
  if (!good || !rest.empty()) {
    fail(
        "action \"{}\": expected stage, letters, micro-batch, as in 2F0; the letters are L F C B I W (with a "
        "micro-batch), R O (without) and SF RF SG RG (with the far end too, as in 0SF0>2 and 2RF0<0)",
        printable(text, kShownLetters));
  }
  return action;
}

}  // namespace troika
