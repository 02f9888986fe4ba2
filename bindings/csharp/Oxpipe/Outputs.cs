using System;
using System.Collections.Generic;

namespace Oxpipe
{
    /// <summary>The outputs of one run, in the library's memory. Any thread, any number of calls at once.</summary>
    public sealed unsafe class Outputs : IDisposable
    {
        internal readonly OutputsHandle Handle = new OutputsHandle();

        internal Outputs()
        {
        }

        /// <summary>The names, in the order in which outputs were asked for.</summary>
        public IReadOnlyList<string> Names
        {
            get
            {
                using (var lease = new Lease(Handle))
                {
                    var outputs = (oxp_outputs*)lease.Pointer;
                    ulong count;
                    oxp_error* error;
                    Calls.Check(NativeMethods.oxp_outputs_get_count(outputs, &count, &error), error);
                    var names = new string[checked((int)count)];
                    for (int index = 0; index < names.Length; index++)
                    {
                        byte* name;
                        ulong length;
                        oxp_tensor_in tensor;
                        int status = NativeMethods.oxp_outputs_get_at(
                            outputs, (ulong)index, &name, &length, &tensor, &error);
                        Calls.Check(status, error);
                        names[index] = Calls.Text(name, length);
                    }
                    return names;
                }
            }
        }

        /// <summary>Reads an output where it lies: <c>outputs.Use("y", y => y.As&lt;float&gt;()[0])</c>.</summary>
        public TResult Use<TResult>(string name, TensorReader<TResult> reader)
        {
            using (var lease = new Lease(Handle))
            using (var text = new Utf8Text(name ?? throw new ArgumentNullException(nameof(name))))
            {
                oxp_tensor_in tensor;
                oxp_error* error;
                int status = NativeMethods.oxp_outputs_get(
                    (oxp_outputs*)lease.Pointer, text.Bytes, text.Length, &tensor, &error);
                Calls.Check(status, error);
                return reader(new TensorView(&tensor));
            }
        }

        /// <summary>A copy of the elements of an output.</summary>
        public T[] ToArray<T>(string name) where T : struct
        {
            return Use(name, tensor => tensor.As<T>().ToArray());
        }

        public long[] ShapeOf(string name)
        {
            return Use(name, tensor => tensor.Shape.ToArray());
        }

        public void Dispose()
        {
            Handle.Dispose();
        }
    }
}
