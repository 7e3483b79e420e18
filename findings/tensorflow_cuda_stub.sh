#!/usr/bin/env bash
# PyTorch, imported after TensorFlow, asks TensorFlow's stub of the CUDA runtime for its GPUs.
#
# One would expect each of two packages to use the CUDA runtime that it was built with: PyTorch 2.13
# brings libcudart.so.13 and names that version at each of its symbols.
# What happens: libtensorflow_framework.so.2 exports functions under the names of the CUDA runtime
# (`cudaGetDeviceCount` and others), which load the real one if they find it. Where TensorFlow was
# imported first, PyTorch's calls of that name go there. On a machine without a GPU PyTorch, which is
# silent when it is alone or first, then warns of error 302, in the words of TensorFlow's stub:
# "Error loading CUDA libraries. GPU will not be used."
# Source: TensorFlow's XLA, xla/tsl/cuda/cudart_stub.cc, as the library itself names it; `nm -D` of both
# libraries; the dynamic linker's own report of what was bound (LD_DEBUG=bindings), below.
# Consequence for a user: a program that has loaded TensorFlow (by Keras, say) and then uses PyTorch
# (Optuna's GPSampler, say) warns of CUDA on a machine that has none; whoever turns warnings into
# errors gets one in the middle of a fit. Import torch first, or ignore "CUDA initialization". What
# happens on a machine with a GPU was not measured.
#
# Seen with tensorflow 2.21.0, torch 2.13.0 (CUDA 13), Python 3.11, x86-64 Linux without a GPU.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet tensorflow==2.21.0 torch===2.13.0 >&2  # not its build +cpu
cat > "$work/order.txt" <<'PYTHON'
import importlib, sys, warnings

for name in sys.argv[1:]:
    importlib.import_module(name)
import torch

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    count = torch.cuda.device_count()
said = [str(each.message).split("Error 302")[-1].split(" (")[0] for each in caught]
print(f"{' '.join(sys.argv[1:]):16} GPUs {count}, warnings {said}")
PYTHON
{
    for order in "torch" "torch tensorflow" "tensorflow torch"; do
        # shellcheck disable=SC2086  # two words, two modules
        TF_CPP_MIN_LOG_LEVEL=3 LD_DEBUG=bindings LD_DEBUG_OUTPUT="$work/bound" \
            "$work/venv/bin/python" "$work/order.txt" $order 2>/dev/null
        sed -n 's/.*libc10_cuda.so \[0\] to .*\/\(lib[a-z_]*[^/]*\) \[0\]: normal symbol `cudaGetDeviceCount.*/  bound to \1/p' \
            "$work"/bound.* | sort -u
        rm "$work"/bound.*
    done
} | tee "$work/seen"
diff "$work/seen" - <<'SEEN'
torch            GPUs 0, warnings []
  bound to libcudart.so.13
torch tensorflow GPUs 0, warnings []
  bound to libcudart.so.13
tensorflow torch GPUs 0, warnings [': Error loading CUDA libraries. GPU will not be used.']
  bound to libtensorflow_framework.so.2
SEEN
echo "As seen."
