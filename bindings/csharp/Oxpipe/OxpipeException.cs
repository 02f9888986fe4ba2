using System;

namespace Oxpipe
{
    /// <summary>
    /// A call of the library failed. It did nothing, and its objects stay usable.
    /// </summary>
    public sealed class OxpipeException : Exception
    {
        internal OxpipeException(
            Status status, string message, string component, string port, string node, string file,
            Exception inner = null)
            : base(message, inner)
        {
            Status = status;
            Component = component;
            Port = port;
            Node = node;
            File = file;
        }

        /// <summary>The same failure, which was caused by this exception of the host's.</summary>
        internal OxpipeException CausedBy(Exception inner)
        {
            return new OxpipeException(Status, Message, Component, Port, Node, File, inner);
        }

        internal OxpipeException(Status status, string message) : this(status, message, "", "", "", "")
        {
        }

        public Status Status { get; }

        /// <summary>The component that the error is about; "" if it is about none.</summary>
        public string Component { get; }

        /// <summary>The port (input or output) that the error is about; "" if it is about none.</summary>
        public string Port { get; }

        /// <summary>The node of the graph that the error is about; "" if it is about none.</summary>
        public string Node { get; }

        /// <summary>The file that the error is about; "" if it is about none.</summary>
        public string File { get; }
    }
}
